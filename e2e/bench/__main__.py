"""`python -m e2e.bench NAME`."""

from __future__ import annotations

import asyncio
import datetime
import sys
from typing import Annotated

import typer

from e2e.bench import figures, scale
from e2e.cluster.errors import ClusterError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Benches on local clusters.")


@app.callback()
def _benches() -> None:
    """Keeps `scale` a command of its own while it is the only one."""


@app.command(name="scale")
def scale_(
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(scale.ALL)}; default: all.")] = None,
    rate: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(scale.RATES)}; default: all.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Of each measurement.")] = 5,
    nodes: Annotated[int, typer.Option(min=10, max=250, help="Fake nodes.")] = 100,
) -> None:
    """A thousand workers on fake nodes; a run of everything is written to docs/bench/scale.json."""
    for given, known in ((only, scale.ALL), (rate, scale.RATES)):
        if unknown := sorted(set(given or ()) - set(known)):
            raise typer.BadParameter(f"{', '.join(unknown)}: known are {', '.join(known)}")
    options = scale.Options(only or scale.ALL, rate or tuple(scale.RATES), repeats, nodes)
    found, whole = figures.Figures(), options == scale.Options()
    try:
        scale.bench(options, found)
    except asyncio.CancelledError:
        whole = False
    except ClusterError as error:
        sys.exit(str(error))
    for row in found.rows():
        print(figures.line(row))
    if whole:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        print(figures.write(scale.NAME, scale.COMMAND, found, today))


if __name__ == "__main__":
    app()
