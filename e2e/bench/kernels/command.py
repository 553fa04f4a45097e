"""Command line of the bench: `python -m e2e.bench kernels`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from convoy_workloads.bench.parts import PartedBench
from e2e.bench.kernels.parts import PARTS
from e2e.bench.kit.options import chosen
from e2e.bench.kit.parts import measure_parts
from e2e.cluster.progress import Progress

BENCH = PartedBench("kernels", "make bench-kernels", tuple(PARTS))


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Part to measure: {', '.join(BENCH.parts)}. Repeatable. Default: all."),
    ] = None,
) -> None:
    """Compare the compute kernels and their engines with their baselines.

    Each part replaces its rows in docs/bench/kernels.json.
    """
    parts = {name: PARTS[name] for name in chosen(only, PARTS)}
    if failed := measure_parts(BENCH, parts, complete=True, progress=Progress()):
        sys.exit("\n".join(failed))
