"""Command line of the bench: `python -m e2e.bench experiments`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from convoy_workloads.bench.figures import Figures
from convoy_workloads.bench.parts import PartedBench
from e2e.bench.experiments.calibration import calibration
from e2e.bench.experiments.perturbations import perturbations
from e2e.bench.experiments.study import study
from e2e.bench.kit.options import require_known
from e2e.bench.kit.parts import measure_parts
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress

PARTS: Mapping[str, Callable[[Figures], None]] = {
    "calibration": calibration,
    "perturbations": perturbations,
    "study": study,
}
"""Functions that measure a part and add its figures, by name of the part."""
BENCH = PartedBench("experiments", "make bench-experiments", tuple(PARTS))


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Part to measure: {', '.join(PARTS)}. Repeatable. Default: all."),
    ] = None,
) -> None:
    """Measure how often the analysis of Experiments is wrong, how closely faults achieve their magnitude, and
    how learned controllers compare with tuned ones.

    Each part replaces its rows in docs/bench/experiments.json.
    """
    require_known(only, PARTS)
    chosen = {name: measure for name, measure in PARTS.items() if not only or name in only}
    try:
        if failed := measure_parts(BENCH, chosen, complete=True, progress=Progress()):
            sys.exit("\n".join(failed))
    except ClusterError as error:
        sys.exit(str(error))
