"""Schedulers that follow a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from convoy_workloads.simulators.dag_scheduling.view import Candidate, View

Key = tuple[float, ...]
_LEAST_WORK = 1.0
"""Executor seconds that count for a job with less work, so that a weight stays finite."""


@dataclass(frozen=True, slots=True)
class Fifo:
    """The oldest job first. It is the default of Spark."""

    def choose(self, view: View) -> int | None:
        """Return the first stage of the oldest job."""
        return _least(view, lambda one: (one.arrival, one.stage))


@dataclass(frozen=True, slots=True)
class ShortestJob:
    """The job with the least work first, and in it the stage on the critical path (SJF-CP)."""

    def choose(self, view: View) -> int | None:
        """Return the stage with the longest path of the job with the least work."""
        return _least(view, lambda one: (one.work, -one.path, one.job, one.stage))


@dataclass(frozen=True, slots=True)
class LongestJob:
    """The job with the most work first: a scheduler that is bad on purpose."""

    def choose(self, view: View) -> int | None:
        """Return a stage of the job with the most work."""
        return _least(view, lambda one: (-one.work, one.job, one.stage))


@dataclass(frozen=True, slots=True)
class WeightedFair:
    """Weighted fair share: each job gets executors in proportion to its work to the power of `exponent`.

    The exponent 0 is plain fair share, as in Spark's fair scheduler. A negative exponent prefers small jobs.
    """

    exponent: float
    limit: float
    """Largest share of the executors that one job gets."""

    def choose(self, view: View) -> int | None:
        """Return a stage of the job that is furthest below its share."""
        most = max(1.0, self.limit * view.capacity)
        found = _least(view, self._order, lambda one: one.executors < most)
        return _least(view, self._order) if found is None and not view.may_idle else found

    def _order(self, one: Candidate) -> Key:
        weight = max(one.work, _LEAST_WORK) ** self.exponent
        return ((one.executors + 1) / weight, not one.local, -one.path, one.job, one.stage)


@dataclass(slots=True)
class Gang:
    """Gang scheduling: a job starts once `size` executors are not reserved. It keeps them until it ends."""

    size: int
    shortest_first: bool
    """True to admit the job with the least work first, else the oldest one."""
    _admitted: set[int] = field(default_factory=set)

    def choose(self, view: View) -> int | None:
        """Return a stage of a job that has its gang, or of a job that is admitted now."""
        self._admitted &= set(view.live)
        found = _least(
            view,
            lambda one: (-one.path, one.job, one.stage),
            lambda one: one.job in self._admitted and one.executors < self.size,
        )
        if found is not None:
            return found
        if not self._admitted or (len(self._admitted) + 1) * self.size <= view.capacity:
            found = _least(view, self._order, lambda one: one.job not in self._admitted)
        if found is not None:
            self._admitted.add(view.candidates[found].job)
            return found
        return None if view.may_idle else _least(view, self._order)

    def _order(self, one: Candidate) -> Key:
        first = one.work if self.shortest_first else one.arrival
        return (first, one.arrival, -one.path, one.stage)


def _all(one: Candidate) -> bool:
    return True


def _least(
    view: View, key: Callable[[Candidate], Key], allowed: Callable[[Candidate], bool] = _all
) -> int | None:
    """Return the index of the allowed candidate with the least key; None if no candidate is allowed."""
    found = [index for index, one in enumerate(view.candidates) if allowed(one)]
    return min(found, key=lambda index: key(view.candidates[index]), default=None)
