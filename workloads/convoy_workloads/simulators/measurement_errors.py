"""Lag and noise of the measurements that a policy sees, and the magnitudes that were achieved."""

from __future__ import annotations

import math
import random

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.perturbation import Perturbation, magnitude_at


class MeasurementErrors:
    """The errors of the measurements of one run."""

    def __init__(self, perturbation: Perturbation | None, seed: int) -> None:
        self._perturbation = perturbation
        self._draw = random.Random(f"{seed}/telemetry")  # noqa: S311 - must be repeatable
        self._errors: list[float] = []
        self._lags: list[float] = []

    def lag(self, now: float) -> float:
        """Return the seconds by which measurements are late now."""
        return magnitude_at(self._perturbation, PerturbationKind.OBSERVATION_LAG, now, 0.0)

    def record_lag(self, seconds: float) -> None:
        """Record a lag with which a policy has seen a measurement."""
        self._lags.append(seconds)

    def factor(self, now: float) -> float:
        """Return a positive random factor with mean 1 (lognormal); 1 without noise."""
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
