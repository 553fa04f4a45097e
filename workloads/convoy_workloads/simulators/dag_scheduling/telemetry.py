"""Measurements of the jobs' work, which may be late or wrong. The scheduler knows its own decisions well."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from convoy_workloads.simulators.measurement_errors import MeasurementErrors
from convoy_workloads.simulators.perturbation import Perturbation


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
        self._measured = MeasurementErrors(perturbation, seed)

    def read(self, history: History, now: float) -> tuple[float, float]:
        """Return the job's work and the factor for its times, as the policy sees them now."""
        lag = self._measured.lag(now)
        if lag:
            self._measured.record_lag(min(lag, now - history.times[0]))
        return history.at(now - lag) * self._measured.factor(now), self._measured.factor(now)

    @property
    def achieved(self) -> float | None:
        """Return the measured magnitude of the perturbation; None if it changed no measurement."""
        return self._measured.achieved
