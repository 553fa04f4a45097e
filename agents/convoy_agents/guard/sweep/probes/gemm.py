"""Measures the speed of matrix products on all cores of the CPU."""

from __future__ import annotations

import os
import time

import numpy as np

from convoy_agents.guard.sweep.probe import Measured, sample_numbers

_MANY_CORES = 16
_WARM_UP_RUNS = 3
"""Number of products before the first sample. By then the clock frequency and the threads are stable."""


def run(accelerator: int, seconds: float) -> Measured:
    """Measure the speed of float32 matrix products in GFLOP/s."""
    # The matrices are so large that one product can be timed, and so small that there are many samples. All
    # nodes of a class have the same number of cores, so their sizes are equal.
    size = 2048 if len(os.sched_getaffinity(0)) > _MANY_CORES else 1024
    left = np.linspace(-1, 1, size * size, dtype=np.float32).reshape(size, size)
    right = np.ascontiguousarray(left.T)
    out = np.empty_like(left)
    for _ in range(_WARM_UP_RUNS):
        np.matmul(left, right, out=out)
    samples = []
    for _ in sample_numbers(seconds):
        began = time.perf_counter()
        np.matmul(left, right, out=out)
        samples.append(2 * size**3 / (time.perf_counter() - began) / 1e9)
    return Measured(samples)
