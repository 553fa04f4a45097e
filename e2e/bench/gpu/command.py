"""Command line of the bench: `python -m e2e.bench gpu`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from convoy_workloads.bench.comparison import broken
from convoy_workloads.bench.parts import PartedBench
from e2e.bench.gpu.parts import PARTS
from e2e.bench.gpu.running import run_part
from e2e.bench.kit.options import chosen

BENCH = PartedBench("gpu", "make bench-gpu", tuple(PARTS))


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Part to measure: {', '.join(PARTS)}. Repeatable. Default: all."),
    ] = None,
    small: Annotated[bool, typer.Option(help="Measure little, and record nothing.")] = False,
) -> None:
    """Measure what uses a GPU: the probes of sweeps, training and its saves, and the engines that serve.

    Needs one NVIDIA GPU and root. Each part replaces its rows in docs/bench/gpu.json.
    """
    failed = []
    for name in chosen(only, PARTS):
        found, why = run_part(name, small)
        missed = broken(found)
        BENCH.publish(name, found, complete=not (small or why or missed))
        failed += [f"{name}: {one}" for one in [*missed, *([why] if why else [])]]
    if failed:
        sys.exit("\n".join(failed))
