"""Command line of the bench: `python -m e2e.bench autoscaling`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from convoy_workloads.bench.comparison import compare
from convoy_workloads.bench.figures import Figures
from convoy_workloads.bench.parts import PartedBench
from convoy_workloads.engines.fmplex import bench as fmplex
from convoy_workloads.engines.sklearn.bench import BENCH as SKLEARN
from e2e.bench.autoscaling import activator, load_step
from e2e.bench.kit.parts import run_parts
from e2e.cluster.progress import Progress
from e2e.oracle.hpa import rows as oracle


def _oracle(found: Figures, progress: Progress) -> None:
    oracle.add(found, oracle.COUNT, progress)


def _fmplex(found: Figures, progress: Progress) -> None:
    found.merge(fmplex.figures("full"))


def _sklearn(found: Figures, progress: Progress) -> None:
    found.merge(compare(SKLEARN))


PARTS: Mapping[str, Callable[[Figures, Progress], None]] = {
    "oracle": _oracle,
    "step": load_step.add,
    "activator": activator.add,
    "fmplex": _fmplex,
    "sklearn": _sklearn,
}
"""Functions that measure a part and add its figures, by name of the part."""
BENCH = PartedBench("autoscaling", "make bench-autoscaling", tuple(PARTS))


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Part to measure: {', '.join(PARTS)}. Repeatable. Default: all."),
    ] = None,
) -> None:
    """Compare the autoscaler with Kubernetes' own, and tasks on a shared backbone with private instances.

    Each part replaces its rows in docs/bench/autoscaling.json.
    """
    run_parts(BENCH, PARTS, only)
