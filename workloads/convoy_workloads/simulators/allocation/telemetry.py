"""Measurements of the use of ended jobs, by class. They may be late or wrong."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.allocation.workload import CLASSES, Amount
from convoy_workloads.simulators.perturbation import Perturbation, magnitude_at


class Telemetry:
    """The measurements, in the order of their times."""

    def __init__(self, perturbation: Perturbation | None, seed: int) -> None:
        self._perturbation = perturbation
        self._draw = random.Random(f"{seed}/telemetry")  # noqa: S311 - must be repeatable
        self._times: list[list[float]] = [[] for _ in CLASSES]
        self._used: list[list[Amount]] = [[] for _ in CLASSES]
        self._errors: list[float] = []
        self._lags: list[float] = []

    def record(self, now: float, kind: int, used: Amount) -> None:
        """Record the largest use of a job that ends now."""
        cores, memory = self._factor(now), self._factor(now)
        self._times[kind].append(now)
        self._used[kind].append(Amount(used.cores * cores, used.memory * memory))

    def count(self, now: float, kind: int) -> int:
        """Return the number of measurements of a class that can be seen now."""
        lag = magnitude_at(self._perturbation, PerturbationKind.OBSERVATION_LAG, now, 0.0)
        if lag:
            self._lags.append(lag)
        return bisect_right(self._times[kind], now - lag)

    def oldest(self, kind: int, count: int) -> tuple[Sequence[float], Sequence[Amount]]:
        """Return the times and the uses of the first measurements of a class."""
        return self._times[kind][:count], self._used[kind][:count]

    def seconds(self, now: float, declared: float) -> float:
        """Return the length of a job as the scheduler sees it."""
        return declared * self._factor(now)

    def _factor(self, now: float) -> float:
        """Return a positive random factor with mean 1 (lognormal); 1 without a perturbation."""
        deviation = magnitude_at(self._perturbation, PerturbationKind.TELEMETRY_NOISE, now, 0.0)
        if not deviation:
            return 1.0
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
