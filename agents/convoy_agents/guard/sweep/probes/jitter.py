"""How evenly a core gets to run: a short loop, timed again and again."""

from __future__ import annotations

import gc
import time

from convoy_agents.guard.sweep.probe import Measured, until

_TURNS = 200
"""Of the loop that is timed: some ten microseconds."""
_TIMES = 1000
"""That it is timed for one sample."""
_RANK = 990
"""Of the sorted times: the 99th percentile."""


def run(accelerator: int, seconds: float) -> Measured:
    """Microseconds, 99th percentile of each thousand: interrupts, stolen time and throttling stretch it."""
    gc.disable()
    samples = []
    for _ in until(seconds):
        times = sorted(_once() for _ in range(_TIMES))
        samples.append(times[_RANK] / 1e3)
    return Measured(samples)


def _once() -> int:
    began = time.perf_counter_ns()
    total = 0
    for turn in range(_TURNS):
        total += turn
    return time.perf_counter_ns() - began
