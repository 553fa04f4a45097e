"""The group of commands `convoy guard`."""

from __future__ import annotations

import typer

from convoy.cli.guard import decide, why

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Explain a node's health, or overrule Convoy's decisions.",
)
app.command("why")(why.why)
app.command("release")(decide.release)
app.command("exempt")(decide.exempt)
app.command("condemn")(decide.condemn)
