"""Workloads: the number of requests that arrive in each second.

All numbers come from the seed alone, so every arm of a block gets the same requests. A number is a quantile
of a Poisson distribution, so a block has the same chances with and without a shift of its rate.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import NormalDist
from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.meta import Model

NORMAL_RATE = 50.0
"""Rate above which the quantile of the normal distribution stands for that of the Poisson distribution."""
_NORMAL = NormalDist()


class BurstyWorkload(Model):
    """Requests whose rate follows a sine wave, with bursts at random times."""

    name: Literal["bursty"] = "bursty"
    rate: Annotated[float, Field(gt=0, le=10_000)] = 20.0
    """Mean number of requests per second without bursts."""
    amplitude: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Amplitude of the wave, as a fraction of `rate`."""
    period_seconds: Annotated[float, Field(gt=0, le=86_400)] = 3600.0
    """Length of one wave."""
    bursts_per_hour: Annotated[float, Field(ge=0, le=3600)] = 4.0
    """Mean number of bursts in an hour."""
    burst_factor: Annotated[float, Field(ge=1, le=100)] = 3.0
    """Factor by which a burst multiplies the rate at its top."""
    burst_seconds: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """Mean length of a burst. Lengths are exponentially distributed."""
    burst_rise_seconds: Annotated[float, Field(ge=0, le=3600)] = 20.0
    """Time in which a burst rises to its top."""


class TraceWorkload(Model):
    """Requests at the rates of a recorded trace. The seed chooses the window of the trace."""

    name: Literal["trace"]
    counts: Annotated[list[Annotated[float, Field(ge=0, le=1e6)]], Field(min_length=2, max_length=10_000)]
    """Number of requests in each interval of the trace."""
    interval_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Length of one interval of the trace."""
    scale: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Factor for all rates."""


Workload = BurstyWorkload | TraceWorkload


def rates(workload: Workload, seconds: int, seed: int) -> list[float]:
    """Return the expected number of requests in each second."""
    if isinstance(workload, TraceWorkload):
        return _trace_rates(workload, seconds, _stream(seed, "window"))
    return _bursty_rates(workload, seconds, _stream(seed, "bursts"))


def arrivals(rates: Sequence[float], seed: int) -> list[int]:
    """Return the number of requests in each second."""
    draw = _stream(seed, "arrivals").random
    return [_poisson_quantile(rate, draw()) for rate in rates]


def _stream(seed: int, purpose: str) -> random.Random:
    return random.Random(f"{seed}/workload/{purpose}")  # noqa: S311 - must be repeatable


def _bursty_rates(workload: BurstyWorkload, seconds: int, stream: random.Random) -> list[float]:
    phase = stream.random() * 2 * math.pi
    turn = 2 * math.pi / workload.period_seconds
    found = [
        workload.rate * (1 + workload.amplitude * math.sin(turn * second + phase))
        for second in range(seconds)
    ]
    if not workload.bursts_per_hour:
        return found
    at, rise = 0.0, max(1.0, workload.burst_rise_seconds)
    while (at := at + stream.expovariate(workload.bursts_per_hour / 3600)) < seconds:
        length = stream.expovariate(1 / workload.burst_seconds)
        for second in range(math.ceil(at), min(seconds, math.ceil(at + length))):
            found[second] *= 1 + (workload.burst_factor - 1) * min(1.0, (second - at) / rise)
    return found


def _trace_rates(workload: TraceWorkload, seconds: int, stream: random.Random) -> list[float]:
    """Return the rates of a window of the trace. A trace that is too short starts again at its end."""
    spare = len(workload.counts) * workload.interval_seconds - seconds
    first = int(stream.random() * spare / workload.interval_seconds) if spare > 0 else 0
    factor = workload.scale / workload.interval_seconds
    numbers = (first + int(second / workload.interval_seconds) for second in range(seconds))
    return [workload.counts[number % len(workload.counts)] * factor for number in numbers]


def _poisson_quantile(rate: float, chance: float) -> int:
    if rate <= 0:
        return 0
    if rate > NORMAL_RATE:
        return max(0, round(rate + math.sqrt(rate) * _NORMAL.inv_cdf(max(chance, 1e-12))))
    term = total = math.exp(-rate)
    count = 0
    # A rounding error may keep the sum of all terms below a number just under 1.
    while total < chance and count < 10 * NORMAL_RATE:
        count += 1
        term *= rate / count
        total += term
    return count
