"""The figures of serving on one machine."""

from __future__ import annotations

from convoy_workloads.bench.comparison import compare
from convoy_workloads.bench.figures import Figures
from convoy_workloads.bench.serving import front
from convoy_workloads.engines.lm.bench import BENCH, REUSE


def figures(size: str) -> Figures:
    """Return the rows about the front, continuous batching and prefix reuse."""
    found = front.figures(size)
    for bench in (BENCH, REUSE):
        found.merge(compare(bench, "full" if size == "full" else "small", None if size == "full" else 1))
    return found
