"""The times at which requests arrive. They depend only on the schedule and the seed. Pure."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

MAX_STEPS = 1000
MAX_RATE = 100_000.0
MAX_SECONDS = 86_400.0


class Arrivals(StrEnum):
    """Distributions of the time between two requests."""

    CONSTANT = "constant"
    """The same time between all requests."""
    POISSON = "poisson"
    """Exponentially distributed times, as of many independent clients."""
    BURSTS = "bursts"
    """Poisson arrivals at two rates in turn. The mean rate is the requested one."""


@dataclass(frozen=True)
class Bursts:
    """The two states of `Arrivals.BURSTS`. The load is calm first."""

    factor: float = 10.0
    """Rate in a burst, divided by the rate between bursts."""
    seconds: float = 1.0
    """Mean duration of a burst."""
    calm_seconds: float = 9.0
    """Mean time between two bursts."""


@dataclass(frozen=True)
class Step:
    """A part of a load with one rate."""

    rate: float
    """Requests per second; 0 for a pause."""
    seconds: float


class ScheduleError(ValueError):
    """Raised if a schedule cannot be read. The message says what is wrong."""


def parse_steps(text: str) -> tuple[Step, ...]:
    """Return the steps in a text such as `5:10,50:30`: rate and seconds of each. Raises ScheduleError for any
    other text.
    """
    found = []
    for number, part in enumerate(text.split(","), 1):
        match = re.fullmatch(r"\s*(\d+\.?\d*):(\d+\.?\d*)\s*", part)
        if match is None:
            raise ScheduleError(f"step {number} is {part!r}, expected RATE:SECONDS such as 50:30")
        step = Step(float(match[1]), float(match[2]))
        if step.rate > MAX_RATE or not 0 < step.seconds <= MAX_SECONDS:
            limits = f"a rate up to {MAX_RATE:g} and up to {MAX_SECONDS:g} seconds"
            raise ScheduleError(f"step {number} is {part!r}, expected {limits}")
        found.append(step)
    if len(found) > MAX_STEPS:
        raise ScheduleError(f"{len(found)} steps are too many: at most {MAX_STEPS}")
    if not any(step.rate for step in found):
        raise ScheduleError("all steps have rate 0: no request would be sent")
    return tuple(found)


def arrivals(
    kind: Arrivals, steps: Sequence[Step], seed: int, bursts: Bursts | None = None
) -> Iterator[float]:
    """Yield the times of the requests, in seconds from the start, in ascending order."""
    drawn = random.Random(seed)  # noqa: S311 - a repeatable load, no secret
    start = 0.0
    for step in steps:
        if kind is Arrivals.BURSTS:
            times = _bursts(drawn, step, bursts or Bursts())
        elif kind is Arrivals.POISSON:
            times = _poisson(drawn, step.rate, step.seconds)
        else:
            times = _constant(step)
        for at in times:
            yield start + at
        start += step.seconds


def _constant(step: Step) -> Iterator[float]:
    # The times are no sums, so that they do not drift.
    times = (number / step.rate for number in itertools.count()) if step.rate else iter(())
    return itertools.takewhile(lambda at: at < step.seconds, times)


def _poisson(drawn: random.Random, rate: float, seconds: float) -> Iterator[float]:
    at = 0.0
    while rate:
        at += drawn.expovariate(rate)
        if at >= seconds:
            return
        yield at


def _bursts(drawn: random.Random, step: Step, bursts: Bursts) -> Iterator[float]:
    calm = step.rate * (bursts.seconds + bursts.calm_seconds)
    calm /= bursts.factor * bursts.seconds + bursts.calm_seconds
    start, burst = 0.0, False
    while start < step.seconds:
        mean = bursts.seconds if burst else bursts.calm_seconds
        end = min(step.seconds, start + drawn.expovariate(1 / mean))
        for at in _poisson(drawn, calm * bursts.factor if burst else calm, end - start):
            yield start + at
        start, burst = end, not burst
