"""Measures how regularly a core runs, by timing a short loop many times."""

from __future__ import annotations

import gc
import time

from convoy_agents.guard.sweep.probe import Measured, sample_numbers

_ITERATIONS = 200
"""Number of iterations of the timed loop, which take about ten microseconds."""
_TIMINGS = 1000
"""Number of timings per sample."""
_P99_INDEX = 990
"""Index of the 99th percentile in the sorted timings of a sample."""


def run(accelerator: int, seconds: float) -> Measured:
    """Measure the 99th percentile of the loop's time in microseconds. Interrupts, stolen CPU time and
    throttling increase it.
    """
    gc.disable()
    samples = []
    for _ in sample_numbers(seconds):
        times = sorted(_once() for _ in range(_TIMINGS))
        samples.append(times[_P99_INDEX] / 1e3)
    return Measured(samples)


def _once() -> int:
    began = time.perf_counter_ns()
    total = 0
    for turn in range(_ITERATIONS):
        total += turn
    return time.perf_counter_ns() - began
