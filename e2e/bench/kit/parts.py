"""Measures the parts of a bench one after another, and records each part as soon as it has ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from convoy_workloads.bench.comparison import broken
from convoy_workloads.bench.figures import Figures
from convoy_workloads.bench.parts import PartedBench
from e2e.bench.kit.options import chosen as chosen_parts
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress


def run_parts(
    bench: PartedBench,
    parts: Mapping[str, Callable[[Figures, Progress], None]],
    only: Sequence[str] | None,
    complete: bool = True,
) -> None:
    """Measure the parts `only`, or all, and exit with a message if a check or the cluster fails.

    `parts`: functions that measure a part and add its figures, by name of the part. `complete` as in
    `measure_parts`.
    """
    progress = Progress()
    measures = {name: partial(_measure, parts[name], progress) for name in chosen_parts(only, parts)}
    try:
        if failed := measure_parts(bench, measures, complete, progress):
            sys.exit("\n".join(failed))
    except ClusterError as error:
        sys.exit(str(error))


def _measure(measure: Callable[[Figures, Progress], None], progress: Progress, found: Figures) -> None:
    measure(found, progress)


def measure_parts(
    bench: PartedBench,
    chosen: Mapping[str, Callable[[Figures], None]],
    complete: bool,
    progress: Progress,
) -> list[str]:
    """Measure the chosen parts. Return the names of the equality checks and controls that failed.

    A part is recorded if it ran to its end and none of its checks failed. `complete` is False if the options
    ask for fewer repeats than the published figures have; then no part is recorded.
    """
    failed: list[str] = []
    for name, measure in chosen.items():
        progress.report(f"measuring {name}")
        found, ended = Figures(), False
        try:
            measure(found)
            ended = True
        finally:
            failed_here = broken(found)
            bench.publish(name, found, complete and ended and not failed_here)
        failed += failed_here
    return failed
