"""The throttle of status writes that carry only progress. Pure but for the memory of the last write."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

PROGRESS_SECONDS = 10.0
"""Shortest time between two progress writes of one job."""
WRITES_PER_SECOND = 4.0
"""Progress writes of all jobs together, of the 5 per second that status may cost etcd: the rest is for
transitions. With more jobs each is written less often."""
PROGRESS_FIELDS = frozenset({"progress", "checkpoint", "goodput"})
"""Fields that move while nothing else happens; they are written as rarely as etcd's budget asks."""

K = TypeVar("K", bound=Hashable)


class ProgressThrottle(Generic[K]):
    """Spaces the writes that only carry progress; any other write goes at once and uses up the job's turn.

    There is one turn for each write that the rate allows, and each belongs to one job: the first that is free
    once the job's last write is old enough. So jobs that began together do not write together. A turn that
    its job does not use in `seconds` lapses.
    """

    def __init__(self, seconds: float, writes_per_second: float) -> None:
        self._seconds = seconds
        self._rate = writes_per_second
        self._written: dict[K, float] = {}
        self._turns: dict[K, int] = {}
        """In units of the time between two writes."""
        self._reserved: set[int] = set()

    def turn(self, key: K, jobs: int, now: float) -> float:
        """Return the seconds until the turn of one of `jobs` active jobs, 0 while it may be used."""
        longest = self._seconds + jobs / self._rate
        at = self._turns.get(key, math.inf) / self._rate
        # One too far ahead was given while there were more jobs.
        if not now - self._seconds <= at <= now + longest:
            self._release(key)
            earliest = max(now, self._written.get(key, -math.inf) + self._seconds)
            at = self._reserve(key, earliest) / self._rate
        return max(0.0, at - now)

    def _reserve(self, key: K, earliest: float) -> int:
        turn = math.ceil(earliest * self._rate)
        while turn in self._reserved:
            turn += 1
        self._turns[key] = turn
        self._reserved.add(turn)
        return turn

    def _release(self, key: K) -> None:
        self._reserved.discard(self._turns.pop(key, -1))

    def wait(
        self,
        key: K,
        stored: Mapping[str, Any],
        patch: Mapping[str, Any],
        jobs: int,
        now: float,
        fields: frozenset[str] = PROGRESS_FIELDS,
    ) -> float:
        """Return the seconds until `patch` of the `stored` status may be written; 0 for now.

        `fields` are those that move while nothing else happens.

        The first progress and the first checkpoint are news and go at once; so does the last progress of a
        job that comes up or goes away, since its pods may not be there to report it again.
        """
        turned = "cause" in patch.get("goodput", ())
        known = patch.keys() <= fields & stored.keys()
        steady = stored.get("phase") == "Running" and known and not turned
        return self.turn(key, jobs, now) if steady else 0.0

    def record_write(self, key: K, now: float) -> None:
        """Note a write of the status."""
        self._written[key] = now
        self._release(key)

    def drop(self, key: K) -> None:
        """Drop an object that is gone."""
        self._written.pop(key, None)
        self._release(key)
