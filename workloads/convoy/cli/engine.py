"""`convoy engine`: what the engines of the catalogue are and take."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from convoy.cli.cluster import Context, Failure, connect
from convoy.cli.table import plain, show
from convoy_crds.engine import Engine
from convoy_crds.parameters import parameters
from convoy_crds.suggest import suggestion


def engine(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the Engine.")],
    context: Context = None,
) -> None:
    """Show what an engine does and takes.

    Its parameters with their type, default and meaning.
    """
    known = {one.metadata.name: one for one in connect(None, context).engines.list()}
    if name not in known:
        raise Failure(f"there is no Engine {name!r}{suggestion(name, known)}")
    describe(known[name])


def describe(found: Engine) -> None:
    """Prints one engine."""
    typer.echo(f"{found.metadata.name}: {found.spec.description or 'no description'}")
    typer.echo(f"image {found.spec.image}, command {' '.join(found.spec.command)}\n")
    lines = parameters(found.spec.params_schema)
    if not lines:
        typer.echo("It takes no parameters.")
        return
    table = plain()
    for head in ("PARAMETER", "TYPE", "DEFAULT", "MEANING"):
        table.add_column(head, overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    show(table)
