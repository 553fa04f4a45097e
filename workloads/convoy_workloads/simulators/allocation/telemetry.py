"""Measurements of the use of ended jobs, by class. They may be late or wrong."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from convoy_workloads.simulators.allocation.workload import CLASSES, Amount
from convoy_workloads.simulators.measurement_errors import MeasurementErrors
from convoy_workloads.simulators.perturbation import Perturbation


class Telemetry:
    """The measurements, in the order of their times."""

    def __init__(self, perturbation: Perturbation | None, seed: int) -> None:
        self._measured = MeasurementErrors(perturbation, seed)
        self._times: list[list[float]] = [[] for _ in CLASSES]
        self._used: list[list[Amount]] = [[] for _ in CLASSES]

    def record(self, now: float, kind: int, used: Amount) -> None:
        """Record the largest use of a job that ends now."""
        cores, memory = self._measured.factor(now), self._measured.factor(now)
        self._times[kind].append(now)
        self._used[kind].append(Amount(used.cores * cores, used.memory * memory))

    def count(self, now: float, kind: int) -> int:
        """Return the number of measurements of a class that can be seen now."""
        lag = self._measured.lag(now)
        if lag:
            self._measured.record_lag(lag)
        return bisect_right(self._times[kind], now - lag)

    def oldest(self, kind: int, count: int) -> tuple[Sequence[float], Sequence[Amount]]:
        """Return the times and the uses of the first measurements of a class."""
        return self._times[kind][:count], self._used[kind][:count]

    def seconds(self, now: float, declared: float) -> float:
        """Return the length of a job as the scheduler sees it."""
        return declared * self._measured.factor(now)

    @property
    def achieved(self) -> float | None:
        """Return the measured magnitude of the perturbation; None if it changed no measurement."""
        return self._measured.achieved
