"""`python -m e2e.bench scale`."""

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
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(bench.ALL)}; default: all.")] = None,
    rate: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(bench.RATES)}; default: all.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Of each measurement.")] = 5,
    nodes: Annotated[int, typer.Option(min=10, max=250, help="Fake nodes.")] = 100,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds to wait before each step for a machine left alone.")
    ] = 0.0,
) -> None:
    """A thousand workers on fake nodes; a run of everything is written to docs/bench/scale.json."""
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
