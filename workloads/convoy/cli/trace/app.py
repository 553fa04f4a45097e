"""The group of commands `convoy trace`."""

from __future__ import annotations

import typer

from convoy.cli.trace import analyse, convert, fetch, generate, predict, record, replay, show, validate

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Record, convert, check, replay, predict, analyse, generate and show Chakra execution traces.",
)
app.command("record")(record.record)
app.command("fetch")(fetch.fetch)
app.command("convert")(convert.convert)
app.command("validate")(validate.validate)
app.command("replay")(replay.replay)
app.command("predict")(predict.predict)
app.command("analyse")(analyse.analyse)
app.command("generate")(generate.generate)
app.command("show")(show.show)
