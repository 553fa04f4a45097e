"""Jobs of the simulated cluster: each one needs cores and memory, and its owner requests more than it needs.

The generator has the form that studies of production clusters report: a few classes of jobs, requests well
above the use, and a use that changes over the hours. Its numbers are our own. All numbers come from the seed
alone, so every arm of a block gets the same jobs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from convoy_crds.meta import Model


class Workload(Model):
    """Jobs that arrive at random times."""

    jobs: Annotated[int, Field(ge=1, le=2000)] = 80
    """Number of jobs in the run."""
    mean_interval_seconds: Annotated[float, Field(gt=0, le=86_400)] = 5.0
    """Mean time between two arrivals. The times are exponentially distributed."""
    drift: Annotated[float, Field(ge=0, le=0.9)] = 0.35
    """Amplitude of the wave that the mean use of each class follows."""
    drift_seconds: Annotated[float, Field(gt=0, le=86_400)] = 1800.0
    """Period of that wave."""
    history_seconds: Annotated[float, Field(ge=0, le=86_400)] = 1800.0
    """Length of the time before the run from which measurements exist."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """A class of jobs."""

    cores: float
    memory: float
    seconds: float
    """Mean length of a job."""
    spread: float
    """Standard deviation of the logarithm of a job's use."""
    requested: float
    """Requests divided by the mean use."""


CLASSES = (
    JobClass(1.0, 4.0, 40.0, 0.15, 2.5),
    JobClass(2.0, 3.0, 90.0, 0.25, 2.0),
    JobClass(4.0, 8.0, 60.0, 0.20, 1.8),
    JobClass(1.5, 16.0, 120.0, 0.30, 1.6),
    JobClass(6.0, 6.0, 30.0, 0.15, 2.2),
    JobClass(3.0, 24.0, 150.0, 0.25, 1.5),
)
"""The classes, all equally frequent. Cores, and memory in GiB."""


ROUNDING = 1e-6
"""Difference of two amounts that comes from rounding only."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Cores and memory, of a job or of a node."""

    cores: float
    memory: float

    def fits(self, free: Amount) -> bool:
        """Return True if there is as much in `free`."""
        return self.cores <= free.cores + ROUNDING and self.memory <= free.memory + ROUNDING

    def plus(self, other: Amount, sign: int = 1) -> Amount:
        """Return the sum with another amount, or with `sign` -1 the difference."""
        return Amount(self.cores + sign * other.cores, self.memory + sign * other.memory)

    def times(self, factor: float) -> Amount:
        """Return a multiple of the amount."""
        return Amount(self.cores * factor, self.memory * factor)


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the workload."""

    arrival: float
    kind: int
    """Number of its class."""
    seconds: float
    """Its length if it gets the cores that it can use."""
    declared_seconds: float
    """The length that its owner expects."""
    used: Amount
    """The most that it uses."""
    request: Amount
    """The amount that its owner requests."""
    failure_point: float
    """Share of its length after which it needs its largest memory."""


def jobs(workload: Workload, seed: int, factor_at: Callable[[float], float] = lambda _: 1.0) -> list[Job]:
    """Return the jobs in the order of their arrival. `factor_at` returns the factor of the arrivals' rate at
    a time. Only the use of a job depends on the time, through the wave of its class.
    """
    arrivals, kinds = _stream(seed, "arrivals"), _stream(seed, "jobs")
    phases = _phases(seed)
    at, found = 0.0, []
    for _ in range(workload.jobs):
        at += arrivals.expovariate(1 / workload.mean_interval_seconds) / factor_at(at)
        found.append(_job(workload, at, phases, kinds))
    return found


def history(workload: Workload, seed: int) -> list[Job]:
    """Return the jobs that ran before the run, at times below 0, in the order of their arrival."""
    draw, phases = _stream(seed, "history"), _phases(seed)
    at, found = -workload.history_seconds, []
    while (at := at + draw.expovariate(1 / workload.mean_interval_seconds)) < 0:
        found.append(_job(workload, at, phases, draw))
    return found


def _stream(seed: int, purpose: str) -> random.Random:
    return random.Random(f"{seed}/workload/{purpose}")  # noqa: S311 - must be repeatable


def _phases(seed: int) -> list[float]:
    draw = _stream(seed, "phases")
    return [draw.random() * 2 * math.pi for _ in CLASSES]


def _job(workload: Workload, at: float, phases: list[float], draw: random.Random) -> Job:
    kind = draw.randrange(len(CLASSES))
    known = CLASSES[kind]
    turn = 2 * math.pi * at / workload.drift_seconds
    level = 1 + workload.drift * math.sin(turn + phases[kind])
    seconds = known.seconds * draw.lognormvariate(0.0, 0.5)
    cores = known.cores * level * draw.lognormvariate(0.0, known.spread)
    memory = known.memory * level * draw.lognormvariate(0.0, known.spread)
    declared = seconds * draw.lognormvariate(0.0, 0.3)
    request = Amount(known.cores, known.memory).times(known.requested)
    return Job(at, kind, seconds, declared, Amount(cores, memory), request, draw.uniform(0.2, 0.9))
