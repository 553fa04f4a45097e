"""Command line of the bench: `python -m e2e.bench spotlight`."""

from __future__ import annotations

import sys
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from convoy_workloads.bench.figures import FOLDER
from convoy_workloads.bench.parts import PartedBench
from convoy_workloads.engines.orchestration.work import mapping
from e2e.bench.kit.options import chosen
from e2e.bench.kit.parts import measure_parts
from e2e.bench.spotlight.parts import PARTS, SIZES, Study
from e2e.bench.spotlight.runs import OtherCode, Store
from e2e.cluster.progress import Progress

BENCH = PartedBench("spotlight", "make bench-spotlight", tuple(PARTS))
RUNS = FOLDER / "spotlight.runs.json"
"""File with the results of all runs and tunings, which a stopped bench goes on with."""


class SizeName(StrEnum):
    """Extent of the bench."""

    SMALL = "small"
    FULL = "full"


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Part to measure: {', '.join(PARTS)}. Repeatable. Default: all."),
    ] = None,
    size: Annotated[
        SizeName, typer.Option(help="small: a few minutes, and no file is replaced.")
    ] = SizeName.FULL,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Number of processes.")] = 1,
) -> None:
    """Compare the engine spotlight with its baselines, on a virtual clock with real gradient steps.

    Each part replaces its rows in docs/bench/spotlight.json.
    """
    names = chosen(only, PARTS)
    full = size is SizeName.FULL
    try:
        store = Store(RUNS if full else None)
    except OtherCode as error:
        sys.exit(str(error))
    with mapping(workers) as map_all:
        study = Study(SIZES[size], store, map_all)
        parts = {name: partial(PARTS[name], study) for name in names}
        failed = measure_parts(BENCH, parts, complete=full, progress=Progress())
    if failed and full:
        sys.exit("\n".join(failed))
