"""Command line of the bench: `python -m e2e.bench placement`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated

import typer

from convoy_workloads.bench.figures import Figures
from convoy_workloads.bench.parts import PartedBench
from e2e.bench.kit.parts import run_parts
from e2e.bench.placement import large, packing
from e2e.bench.placement.gangs import parts as gangs
from e2e.cluster.progress import Progress

PARTS: Mapping[str, Callable[[Figures, Progress], None]] = {
    "packing": packing.add,
    "large": large.add,
    "gangs": gangs.without_gates,
    "gangs-1.36": partial(gangs.native, "1.36"),
    "gangs-1.37": partial(gangs.native, "1.37"),
}
"""Functions that measure a part and add its figures, by name of the part."""
BENCH = PartedBench("placement", "make bench-placement", tuple(PARTS))


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Part to measure: {', '.join(PARTS)}. Repeatable. Default: all."),
    ] = None,
    record: Annotated[bool, typer.Option(help="Replace the rows of each part in the file.")] = True,
) -> None:
    """Pack jobs into racks, and start whole gangs, beside stock scheduling and JobSet.

    Each part replaces its rows in docs/bench/placement.json.
    """
    run_parts(BENCH, PARTS, only, complete=record)
