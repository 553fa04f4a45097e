"""A short training with a fixed seed. Its bits must be the same on each run, core and node.

It detects silent computation errors. Bits are comparable within one hardware class only, because other
processors sum in a different order.
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
"""Minimum number of runs, even in a short time, because detecting a difference needs two."""
_DIGITS = 32
"""Hexadecimal digits of a digest."""

Array = NDArray[np.float32]


def run(accelerator: int, seconds: float) -> Measured:
    """Return one digest per run. Runs use one core after the other, starting at a random one, until all
    were used.
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
    """Return the digest of all values of every step of a network with one hidden layer.

    A digest of the weights would not suffice: rounding of their sums can hide a wrong bit of an activation.
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
    """Return random values from -1 to 1, divided by the square root of the number of rows. They use the
    generator's raw bits, which are the same in all numpy versions.
    """
    raw = draw.random_raw(rows * columns) >> np.uint64(40)
    unit = raw.astype(np.float32) / np.float32(2**23) - np.float32(1)
    return (unit / np.float32(rows) ** np.float32(0.5)).reshape(rows, columns)
