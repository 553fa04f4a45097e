"""The times at which requests arrive. They depend only on the rate, the duration and the seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import StrEnum


class Arrivals(StrEnum):
    """Distributions of the time between two requests."""

    CONSTANT = "constant"
    """The same time between all requests."""
    POISSON = "poisson"
    """Exponentially distributed times, as of many independent clients."""


def arrivals(kind: Arrivals, rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Yield the times of the requests, in seconds from the start. `rate`: requests per second."""
    drawn = random.Random(seed)  # noqa: S311 - a repeatable load, no secret
    number, at = 0, 0.0
    while True:
        if kind is Arrivals.POISSON:
            at += drawn.expovariate(rate)
        else:
            at = number / rate
            number += 1
        if at >= seconds:
            return
        yield at
