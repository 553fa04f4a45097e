"""Measures the parts of a bench one after another, and records each part as soon as it has ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from convoy_workloads.bench.comparison import broken
from convoy_workloads.bench.figures import Figures
from convoy_workloads.bench.parts import PartedBench
from e2e.cluster.progress import Progress


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
