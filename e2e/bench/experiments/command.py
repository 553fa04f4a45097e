"""Command line of the bench: `python -m e2e.bench experiments`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated

import typer

from convoy_workloads.bench.figures import Figures
from convoy_workloads.bench.parts import PartedBench
from e2e.bench.experiments.calibration import calibration
from e2e.bench.experiments.perturbations import perturbations
from e2e.bench.experiments.shipped import NODES, SHIPPED, measure
from e2e.bench.experiments.study import study
from e2e.bench.kit.options import chosen
from e2e.bench.kit.parts import measure_parts
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.install import bring_up

LOCAL: Mapping[str, Callable[[Figures], None]] = {
    "calibration": calibration,
    "perturbations": perturbations,
    "study": study,
}
"""Functions that measure a part on this machine and add its figures, by name of the part."""
BENCH = PartedBench("experiments", "make bench-experiments", (*LOCAL, *SHIPPED))


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Part to measure: {', '.join(BENCH.parts)}. Repeatable. Default: all."),
    ] = None,
) -> None:
    """Measure how often the analysis of Experiments is wrong, how closely faults achieve their magnitude, and
    how learned controllers compare with tuned ones. Then run the shipped experiments on real nodes.

    Each part replaces its rows in docs/bench/experiments.json. A shipped experiment also replaces its report
    in docs/reports.
    """
    parts = chosen(only, BENCH.parts)
    progress, failed = Progress(), []
    try:
        if local := {name: LOCAL[name] for name in parts if name in LOCAL}:
            failed += measure_parts(BENCH, local, complete=True, progress=progress)
        if on_nodes := [name for name in parts if name in SHIPPED]:
            failed += _on_nodes(on_nodes, progress)
    except ClusterError as error:
        sys.exit(str(error))
    if failed:
        sys.exit("\n".join(failed))


def _on_nodes(parts: list[str], progress: Progress) -> list[str]:
    """Run shipped experiments on a cluster. Return the names of the checks that failed."""
    cluster = bring_up(BENCH.name, NODES, progress)
    try:
        measures = {name: partial(measure, cluster, name) for name in parts}
        return measure_parts(BENCH, measures, complete=True, progress=progress)
    finally:
        cluster.down()
