"""The command engine, which shows an engine of the cluster, or of the installed package."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from rich.text import Text

from convoy.cli.cluster import Context, Failure, connect
from convoy.cli.table import new_table, print_table
from convoy.client import NoCluster
from convoy_crds.engine import Engine
from convoy_crds.parameters import parameters
from convoy_crds.suggest import suggestion
from convoy_workloads.engines.catalogue import catalogue


def engine(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the Engine.")],
    context: Context = None,
) -> None:
    """Show an engine of the cluster; without a cluster, of the installed package.

    The command shows the engine's description, image, command and metrics. It also shows the type, default
    and meaning of each parameter.
    """
    known = _known(context)
    if name not in known:
        raise Failure(f"there is no Engine {name!r}{suggestion(name, known)}")
    describe(known[name])


def _known(context: str | None) -> dict[str, Engine]:
    """Return the engines of the cluster by name. Without a cluster, return those of the installed package and
    say so, unless `context` names a cluster.
    """
    try:
        cluster = connect(None, context)
    except NoCluster as error:
        if context is not None:
            raise
        typer.echo(f"{error}\nThis is the engine of the installed convoy-operator.\n", err=True)
        return catalogue()
    return {one.metadata.name: one for one in cluster.engines.list()}


def describe(found: Engine) -> None:
    """Print the description, image, command, parameters and metrics of an Engine."""
    typer.echo(f"{found.metadata.name}: {found.spec.description or 'no description'}")
    typer.echo(f"image {found.spec.image}, command {' '.join(found.spec.command)}\n")
    if lines := parameters(found.spec.params_schema):
        _print(("PARAMETER", "TYPE", "DEFAULT", "MEANING"), lines)
    else:
        typer.echo("This engine has no parameters.")
    if found.spec.metrics:
        typer.echo("")
        _print(("METRIC", "UNIT", "MEANING"), [(one.name, one.unit, one.help) for one in found.spec.metrics])


def _print(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    table = new_table()
    for head in heads:
        table.add_column(head, overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    print_table(table)
