"""Command line of the bench: `python -m e2e.bench traces`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from convoy_workloads.bench.figures import Figures
from convoy_workloads.bench.parts import PartedBench
from e2e.bench.kit.options import chosen
from e2e.bench.kit.parts import measure_parts
from e2e.bench.traces import astrasim, graphs, interoperability, loadstore, overhead, predicted
from e2e.cluster.progress import Progress

PARTS: Mapping[str, Callable[[Figures], None]] = {
    "astrasim": astrasim.add,
    "graphs": graphs.add,
    "loadstore": loadstore.add,
    "interoperability": interoperability.add,
    "overhead": overhead.add,
    "predicted": predicted.add,
    "predicted-emulated": predicted.add_emulated,
}
"""Functions that measure a part and add its figures, by name of the part."""
BENCH = PartedBench("traces", "make bench-traces", tuple(PARTS))


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Part to measure: {', '.join(PARTS)}. Repeatable. Default: all."),
    ] = None,
) -> None:
    """Compare the simulator with ASTRA-sim, traces with MLCommons' package, and predictions with real jobs.

    Each part replaces its rows in docs/bench/traces.json.
    """
    parts = {name: PARTS[name] for name in chosen(only, PARTS)}
    if failed := measure_parts(BENCH, parts, complete=True, progress=Progress()):
        sys.exit("\n".join(failed))
