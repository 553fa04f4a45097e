"""Command line of the bench: `python -m e2e.bench engines-training`."""

from __future__ import annotations

import sys
from typing import Annotated

import torch
import typer

from convoy_workloads.bench.parts import PartedBench
from e2e.bench.engines_training.parts import GPU_PARTS, PARTS
from e2e.bench.kit.options import chosen
from e2e.bench.kit.parts import measure_parts
from e2e.cluster.progress import Progress

BENCH = PartedBench("engines_training", "make bench-engines-training", (*PARTS, *GPU_PARTS))


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Part to measure: {', '.join(BENCH.parts)}. Repeatable. Default: all possible."),
    ] = None,
) -> None:
    """Compare the training engines with the baselines of their methods.

    Each part replaces its rows in docs/bench/engines_training.json. Parts of kernels need an NVIDIA GPU.
    """
    possible = {**PARTS, **(GPU_PARTS if torch.cuda.is_available() else {})}
    parts = {name: possible[name] for name in chosen(only, possible)}
    if failed := measure_parts(BENCH, parts, complete=True, progress=Progress()):
        sys.exit("\n".join(failed))
