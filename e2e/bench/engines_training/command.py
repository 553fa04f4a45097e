"""Command line of the bench: `python -m e2e.bench engines-training`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from convoy_workloads.bench.parts import PartedBench
from e2e.bench.engines_training.parts import PARTS
from e2e.bench.kit.options import chosen
from e2e.bench.kit.parts import measure_parts
from e2e.cluster.progress import Progress

BENCH = PartedBench("engines_training", "make bench-engines-training", tuple(PARTS))


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Engine to measure: {', '.join(PARTS)}. Repeatable. Default: all."),
    ] = None,
) -> None:
    """Compare the training engines with the baselines of their methods.

    Each engine replaces its rows in docs/bench/engines_training.json.
    """
    parts = {name: PARTS[name] for name in chosen(only, PARTS)}
    if failed := measure_parts(BENCH, parts, complete=True, progress=Progress()):
        sys.exit("\n".join(failed))
