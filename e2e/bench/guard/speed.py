"""Measures the processor time that the detector needs for one window of 10,000 ranks."""

from __future__ import annotations

import time

import numpy as np

from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.state import initial_state
from convoy_controllers.guard.synthetic import Job, play
from convoy_workloads.bench.figures import Figures, Metric

_WARM_UP, _WINDOWS = 4, 12


def bench(figures: Figures) -> None:
    """Measure windows with 8 and 32 micro-batches. CPU time is measured, because it ignores the machine's
    other load.
    """
    for micro in (8, 32):
        job = Job(stages=8, replicas=1250, micro=micro, work=0.1, groups=False)
        state = initial_state(job.layout())
        for table in play(job, [], _WARM_UP + _WINDOWS, 1):
            before = time.process_time()
            state, _ = advance(state, table)
            spent = time.process_time() - before
            if table.first > _WARM_UP:
                name = f"10,000 ranks, {micro} micro-batches: one window"
                figures.add(Metric(name, "ms of one core", 100), 1000 * spent)
    state_bytes = sum(
        getattr(watch, field).nbytes
        for watch in state.channels.values()
        for field in watch.__slots__
        if isinstance(getattr(watch, field), np.ndarray)
    )
    figures.add(Metric("10,000 ranks: what is kept between windows", "MB", 64), state_bytes / 1e6)
