"""A short training with a fixed seed: its bits must be the same each time, on each core and on each node.

It finds what computes wrongly without saying so. Bits are compared within one class of hardware alone: other
processors order their sums otherwise.
"""

from __future__ import annotations

import hashlib
import os
import random
import time

import numpy as np
from numpy.typing import NDArray

from convoy_agents.guard.sweep.finding import MOST_DIGESTS
from convoy_agents.guard.sweep.probe import Measured

STEPS = 60
_INPUTS, _HIDDEN, _OUTPUTS, _BATCH = 192, 384, 48, 96
_RATE, _MOMENTUM = np.float32(0.05), np.float32(0.9)
_LEAST = 2
"""Runs, however short the time: one alone cannot contradict itself."""
_DIGITS = 32
"""Of a digest, in hexadecimal."""

Array = NDArray[np.float32]


def run(accelerator: int, seconds: float) -> Measured:
    """A digest per run, each on the next core, from a random one on, until all have had their turn."""
    cores = sorted(os.sched_getaffinity(0))
    start = random.randrange(len(cores))  # noqa: S311
    end = time.monotonic() + seconds
    digests: list[str] = []
    for turn in range(min(max(len(cores), _LEAST), MOST_DIGESTS)):
        if turn >= _LEAST and time.monotonic() >= end:
            break
        os.sched_setaffinity(0, {cores[(start + turn) % len(cores)]})
        digests.append(train(STEPS))
    return Measured(digests=digests)


def train(steps: int) -> str:
    """The digest over all that every step of a network with one hidden layer computes.

    Weights alone would not do: one wrong bit of an activation is lost in the rounding of their sums.
    """
    draw = np.random.PCG64(20240229)
    first, second = _drawn(draw, _INPUTS, _HIDDEN), _drawn(draw, _HIDDEN, _OUTPUTS)
    inputs, wanted = _drawn(draw, _BATCH, _INPUTS), _drawn(draw, _BATCH, _OUTPUTS)
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


def _drawn(draw: np.random.PCG64, rows: int, columns: int) -> Array:
    """From -1 to 1, over the root of the rows, by the generator's bits, which stay in all versions."""
    raw = draw.random_raw(rows * columns) >> np.uint64(40)
    unit = raw.astype(np.float32) / np.float32(2**23) - np.float32(1)
    return (unit / np.float32(rows) ** np.float32(0.5)).reshape(rows, columns)
