"""The group of commands `convoy topology`."""

from __future__ import annotations

import typer

from convoy.cli.topology import export

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Describe the cluster's hosts and links as an InfraGraph.",
)
app.command("export")(export.export)


@app.callback()
def group() -> None:
    """Keep `export` a command of the group, because a group of one command would be that command."""
