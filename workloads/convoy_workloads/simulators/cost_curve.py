"""The cost of a run from any time on, if each job costs its weight per second between arrival and end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate


class CostCurve:
    """The jobs of a run as sorted times with sums, so that a look-up takes logarithmic time."""

    def __init__(self, jobs: Iterable[tuple[float, float, float]]) -> None:
        """`jobs`: arrival, end and weight of each job."""
        listed = list(jobs)
        self._arrivals = _Side([(arrival, weight) for arrival, _, weight in listed])
        self._ends = _Side([(end, weight) for _, end, weight in listed])

    @property
    def total(self) -> float:
        """Return the cost of the whole run."""
        return self._ends.moments[0] - self._arrivals.moments[0]

    def cost_from(self, time: float) -> float:
        """Return the weighted seconds that all jobs spend in the system after `time`."""
        ends = bisect_right(self._ends.times, time)
        arrivals = bisect_left(self._arrivals.times, time)
        present = self._ends.weights[ends] - self._arrivals.weights[arrivals]
        return self._ends.moments[ends] - self._arrivals.moments[arrivals] - time * present


class _Side:
    """Sorted times. For each index, the sums over this time and all later ones."""

    def __init__(self, points: list[tuple[float, float]]) -> None:
        ordered = sorted(points)
        self.times = [time for time, _ in ordered]
        self.weights = _suffix_sums([weight for _, weight in ordered])
        self.moments = _suffix_sums([time * weight for time, weight in ordered])


def _suffix_sums(values: Sequence[float]) -> list[float]:
    return [*accumulate(reversed(values), initial=0.0)][::-1]
