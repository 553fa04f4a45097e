"""The group of commands `convoy trace`."""

from __future__ import annotations

import typer

from convoy.cli.trace import analyse, convert, generate, predict, replay, show, validate

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Convert, check, replay, predict, analyse, generate and show Chakra execution traces.",
)
app.command("convert")(convert.convert)
app.command("validate")(validate.validate)
app.command("replay")(replay.replay)
app.command("predict")(predict.predict)
app.command("analyse")(analyse.analyse)
app.command("generate")(generate.generate)
app.command("show")(show.show)
