"""The policy forecast: Holt's linear smoothing of the measured rate."""

from __future__ import annotations

import math

from convoy_workloads.simulators.autoscaling.policies.params import ForecastPolicy
from convoy_workloads.simulators.autoscaling.policies.policy import Hold, ServiceFacts
from convoy_workloads.simulators.autoscaling.telemetry import View


class Forecast:
    """The policy in one run."""

    metrics: tuple[str, ...] = ()

    def __init__(self, params: ForecastPolicy, facts: ServiceFacts) -> None:
        self._params = params
        self._facts = facts
        self._hold = Hold(params.hold_seconds)
        self._rate: float | None = None
        """Smoothed rate; None before the first measurement."""
        self._trend = 0.0
        """Smoothed change of the rate in each second."""
        self._at = 0
        """Time of the newest decision with a measurement."""

    def decide(self, view: View) -> int:
        """Return the number of replicas for the forecast rate. Without any measurement, nothing changes."""
        if view.rate is not None:
            self._smooth(view.rate, view.second)
        if self._rate is None:
            return view.replicas
        ahead = self._params.horizon_seconds + view.second - self._at
        rate = max(0.0, self._rate + self._trend * ahead)
        needed = rate * self._facts.service_seconds / (self._params.target / 100)
        return self._facts.clamp(self._hold.largest(view.second, math.ceil(needed)))

    def _smooth(self, rate: float, second: int) -> None:
        before, passed = self._rate, second - self._at
        self._at = second
        if before is None or not passed:
            self._rate = rate
            return
        self._rate = (1 - self._params.level) * (before + self._trend * passed) + self._params.level * rate
        change = (self._rate - before) / passed
        self._trend = (1 - self._params.trend) * self._trend + self._params.trend * change
