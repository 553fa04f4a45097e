"""Measurements of the jobs' work, which may be late or wrong. The scheduler knows its own decisions well."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from dataclasses import dataclass, field

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.perturbation import Perturbation, magnitude_at


@dataclass(slots=True)
class History:
    """The past values of the work of one job."""

    times: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)

    def record(self, now: float, work: float) -> None:
        """Record the work that is left from now on."""
        self.times.append(now)
        self.work.append(work)

    def at(self, time: float) -> float:
        """Return the work at a time; the first one if the job is younger."""
        return self.work[max(0, bisect_right(self.times, time) - 1)]


class Telemetry:
    """The way from a job to the policy: a lag and a random error of each value."""

    def __init__(self, perturbation: Perturbation | None, seed: int) -> None:
        self._perturbation = perturbation
        self._draw = random.Random(f"{seed}/telemetry")  # noqa: S311 - must be repeatable
        self._errors: list[float] = []
        self._lags: list[float] = []

    def read(self, history: History, now: float) -> tuple[float, float]:
        """Return the job's work and the factor for its times, as the policy sees them now."""
        lag = magnitude_at(self._perturbation, PerturbationKind.OBSERVATION_LAG, now, 0.0)
        noise = magnitude_at(self._perturbation, PerturbationKind.TELEMETRY_NOISE, now, 0.0)
        work = history.at(now - lag)
        if lag:
            self._lags.append(min(lag, now - history.times[0]))
        return (work * self._factor(noise), self._factor(noise)) if noise else (work, 1.0)

    def _factor(self, deviation: float) -> float:
        """Return a positive random factor with mean 1 and this standard deviation (lognormal)."""
        spread = math.sqrt(math.log1p(deviation * deviation))
        factor = math.exp(self._draw.gauss(0.0, spread) - spread * spread / 2)
        self._errors.append(factor - 1)
        return factor

    @property
    def achieved(self) -> float | None:
        """Return the measured lag in seconds, or the measured standard deviation of the errors."""
        if self._lags:
            return math.fsum(self._lags) / len(self._lags)
        if self._errors:
            return math.sqrt(math.fsum(one * one for one in self._errors) / len(self._errors))
        return None
