"""Command line of the bench: `python -m e2e.bench scale`."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from convoy_workloads.bench import figures
from e2e.bench.kit.options import require_known
from e2e.bench.scale import bench
from e2e.cluster.errors import ClusterError


def run(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Scenario: {', '.join(bench.ALL)}. Repeatable. Default: all.")
    ] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option(help=f"Rate limit: {', '.join(bench.RATES)}. Repeatable. Default: all."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Times to repeat each measurement.")] = 5,
    nodes: Annotated[int, typer.Option(min=10, max=250, help="Fake nodes.")] = 100,
    patience: Annotated[
        float, typer.Option(min=0, help="Maximum seconds to wait for a quiet machine before each step.")
    ] = 0.0,
) -> None:
    """Run a thousand workers on fake nodes. A complete run replaces docs/bench/scale.json."""
    require_known(only, bench.ALL)
    require_known(rate, bench.RATES)
    options = bench.Options(only or bench.ALL, rate or tuple(bench.RATES), repeats, nodes, patience)
    found = figures.Figures()
    whole = options == bench.Options(repeats=repeats, patience=patience)
    try:
        bench.bench(options, found)
    except asyncio.CancelledError:
        whole = False
    except ClusterError as error:
        sys.exit(str(error))
    figures.publish(found, bench.NAME, bench.COMMAND, whole)
