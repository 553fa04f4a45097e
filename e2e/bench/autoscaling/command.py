"""Command line of the bench: `python -m e2e.bench autoscaling`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from convoy_workloads.bench import figures
from convoy_workloads.bench.comparison import broken, compare
from convoy_workloads.engines.fmplex import bench as fmplex
from convoy_workloads.engines.sklearn.bench import BENCH as SKLEARN
from e2e.bench.autoscaling import activator
from e2e.bench.kit.options import require_known
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.oracle.hpa import rows as oracle

NAME = "autoscaling"
COMMAND = "make bench-autoscaling"


def _oracle(found: figures.Figures, progress: Progress) -> None:
    oracle.add(found, oracle.COUNT, progress)


def _fmplex(found: figures.Figures, progress: Progress) -> None:
    found.merge(fmplex.figures("full"))


def _sklearn(found: figures.Figures, progress: Progress) -> None:
    found.merge(compare(SKLEARN))


PARTS: Mapping[str, Callable[[figures.Figures, Progress], None]] = {
    "oracle": _oracle,
    "activator": activator.add,
    "fmplex": _fmplex,
    "sklearn": _sklearn,
}
"""Functions that measure a part and add its figures, by name of the part."""


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Part to measure: {', '.join(PARTS)}. Repeatable. Default: all."),
    ] = None,
) -> None:
    """Compare the autoscaler with Kubernetes' own, and tasks on a shared backbone with private instances.

    A complete run replaces docs/bench/autoscaling.json.
    """
    require_known(only, PARTS)
    found, progress = figures.Figures(), Progress()
    try:
        for name, measure in PARTS.items():
            if not only or name in only:
                progress.report(f"measuring {name}")
                measure(found, progress)
        if missed := broken(found):
            sys.exit("\n".join(missed))
    except ClusterError as error:
        sys.exit(str(error))
    finally:
        figures.publish(found, NAME, COMMAND, whole=not only and sys.exc_info()[0] is None)
