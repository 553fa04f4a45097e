"""Repeats a short training with a fixed seed on the CPU, and returns a digest of each run. It detects
silent computation errors.

The digests must be equal on each run, core and node of one hardware class. Other processors may sum in a
different order, so their digests differ.
"""

from __future__ import annotations

import hashlib
import os
import random
import time

import numpy as np
from numpy.typing import NDArray

from convoy_agents.guard.sweep.finding import MAX_DIGESTS
from convoy_agents.guard.sweep.probe import Measured

STEPS = 60
_INPUTS, _HIDDEN, _OUTPUTS, _BATCH = 192, 384, 48, 96
_RATE, _MOMENTUM = np.float32(0.05), np.float32(0.9)
_MIN_RUNS = 2
"""Minimum number of runs. Detecting a difference needs two digests, so the probe makes two runs even if
they take longer than `seconds`.
"""
_DIGITS = 32
"""Number of hexadecimal digits in a digest."""

Array = NDArray[np.float32]


def run(accelerator: int, seconds: float) -> Measured:
    """Train repeatedly, and return one digest per run. The first run uses a random core, and each further
    run uses the next core. Stop when every core was used, or after `seconds`.
    """
    cores = sorted(os.sched_getaffinity(0))
    start = random.randrange(len(cores))  # noqa: S311
    end = time.monotonic() + seconds
    digests: list[str] = []
    for turn in range(min(max(len(cores), _MIN_RUNS), MAX_DIGESTS)):
        if turn >= _MIN_RUNS and time.monotonic() >= end:
            break
        os.sched_setaffinity(0, {cores[(start + turn) % len(cores)]})
        digests.append(train(STEPS))
    return Measured(digests=digests)


def train(steps: int) -> str:
    """Train a network with one hidden layer for `steps` steps, and return a digest of all values of every
    step.

    A digest of the weights alone would not suffice, because rounding can hide a wrong bit of an activation.
    """
    draw = np.random.PCG64(20240229)
    first, second = _random_matrix(draw, _INPUTS, _HIDDEN), _random_matrix(draw, _HIDDEN, _OUTPUTS)
    inputs, wanted = _random_matrix(draw, _BATCH, _INPUTS), _random_matrix(draw, _BATCH, _OUTPUTS)
    speeds = [np.zeros_like(first), np.zeros_like(second)]
    digest = hashlib.sha256()
    for _ in range(steps):
        hidden = np.tanh(inputs @ first)
        wrong = hidden @ second - wanted
        slopes = [inputs.T @ ((wrong @ second.T) * (1 - hidden * hidden)), hidden.T @ wrong]
        for at, weights in enumerate((first, second)):
            speeds[at] = _MOMENTUM * speeds[at] - _RATE / np.float32(_BATCH) * slopes[at]
            np.add(weights, speeds[at], out=weights)
        for values in (hidden, wrong, *slopes, first, second):
            digest.update(values.tobytes())
    return digest.hexdigest()[:_DIGITS]


def _random_matrix(draw: np.random.PCG64, rows: int, columns: int) -> Array:
    """Return a matrix of random values from -1 to 1, divided by the square root of `rows`.

    The values come from the generator's raw bits, because these are the same in all numpy versions.
    """
    raw = draw.random_raw(rows * columns) >> np.uint64(40)
    unit = raw.astype(np.float32) / np.float32(2**23) - np.float32(1)
    return (unit / np.float32(rows) ** np.float32(0.5)).reshape(rows, columns)
