"""Command line of the bench: `python -m e2e.bench survival`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from convoy_workloads.bench import figures
from e2e.bench.kit.options import require_known
from e2e.bench.survival import bench
from e2e.cluster.errors import ClusterError


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Fault to measure: {', '.join(bench.SCENARIOS)}. Repeatable. Default: all."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Times to inject each fault.")] = 5,
    stock: Annotated[
        bool, typer.Option(help="Also measure Kubernetes without Convoy, once (6 minutes).")
    ] = True,
) -> None:
    """Measure recoveries from faults on real nodes. A complete run replaces docs/bench/survival.json."""
    require_known(only, bench.SCENARIOS)
    found = figures.Figures()
    try:
        bench.bench(only or list(bench.SCENARIOS), repeats, stock, found)
    except ClusterError as error:
        sys.exit(str(error))
    finally:
        figures.publish(found, bench.NAME, bench.COMMAND, whole=not only and repeats >= 5)
