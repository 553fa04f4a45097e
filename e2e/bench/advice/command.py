"""Command line of the bench: `python -m e2e.bench advice`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from convoy_workloads.bench.figures import Figures
from convoy_workloads.bench.parts import PartedBench
from e2e.bench.advice import files, placements, sweep
from e2e.bench.kit.parts import run_parts
from e2e.cluster.progress import Progress

PARTS: Mapping[str, Callable[[Figures, Progress], None]] = {
    "files": files.add,
    "sweep": sweep.add,
    "placements": placements.add,
}
"""Functions that measure a part and add its figures, by name of the part."""
BENCH = PartedBench("advice", "make bench-advice", tuple(PARTS))


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Part to measure: {', '.join(PARTS)}. Repeatable. Default: all."),
    ] = None,
    record: Annotated[bool, typer.Option(help="Replace the rows of each part in the file.")] = True,
) -> None:
    """Measure what the remedies of advice are worth, beside what a user has without them.

    Each part replaces its rows in docs/bench/advice.json.
    """
    run_parts(BENCH, PARTS, only, complete=record)
