"""The rate limit of status writes that carry only progress. It does no I/O, but it remembers the last
writes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

PROGRESS_SECONDS = 10.0
"""Minimum number of seconds between two progress writes of one job."""
WRITES_PER_SECOND = 4.0
"""Maximum number of progress writes per second, for all jobs together. All status updates together may cost
etcd 5 writes per second; the remaining write is reserved for transitions. The more jobs there are, the
less often each job writes.
"""
PROGRESS_FIELDS = frozenset({"progress", "checkpoint", "goodput", "internal.goodput", "facts"})
"""Paths of the fields of a job's status that change all the time while the job runs."""

K = TypeVar("K", bound=Hashable)


class ProgressThrottle(Generic[K]):
    """Spaces out writes that carry only progress. All other writes go out at once; such a write also uses
    up its job's turn.

    There is one turn for each write that the rate allows. A job reserves the first free turn after its own
    minimum interval has passed, so jobs that started together do not write together. A turn lapses if its
    job does not use it within `seconds`.
    """

    def __init__(self, seconds: float, writes_per_second: float) -> None:
        self._seconds = seconds
        self._rate = writes_per_second
        self._written: dict[K, float] = {}
        self._turns: dict[K, int] = {}
        """Reserved turn by key, in units of the time between two writes."""
        self._reserved: set[int] = set()

    def turn(self, key: K, jobs: int, now: float) -> float:
        """Return the seconds until the turn of job `key`; 0 if its turn has come. `jobs` is the number of
        active jobs.
        """
        longest = self._seconds + jobs / self._rate
        at = self._turns.get(key, math.inf) / self._rate
        # A turn that is long past has lapsed. A turn that is too far ahead was reserved when there were more
        # jobs. In both cases the job reserves another turn.
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
        """Return the seconds until `patch` of the `stored` status may be written; 0 if it may be written at
        once.

        `fields` are the paths of the status fields that change all the time. A patch waits only if the job's
        phase is Running, or the job has none, and the stored status already has all fields of the patch. All
        these fields must be among `fields`. A patch that changes the goodput cause never waits. So the first
        progress and the first checkpoint go out at once. The progress of a job that is starting or stopping
        also goes out at once, because its pods may be deleted before they can report it again.
        """
        turned = "cause" in patch.get("goodput", ())
        running = stored.get("phase", "Running") == "Running"
        steady = running and _changes_only(patch, stored, fields) and not turned
        return self.turn(key, jobs, now) if steady else 0.0

    def record_write(self, key: K, now: float) -> None:
        """Record that the status of job `key` was written at `now`. The job's turn is then used up."""
        self._written[key] = now
        self._release(key)

    def drop(self, key: K) -> None:
        """Remove the entries of job `key`, which was deleted."""
        self._written.pop(key, None)
        self._release(key)


def _changes_only(patch: Mapping[str, Any], stored: Mapping[str, Any], fields: frozenset[str]) -> bool:
    """Return True if the patch changes only `fields`, and `stored` already has all fields of the patch."""
    for name, value in patch.items():
        inner = frozenset(path.removeprefix(f"{name}.") for path in fields if path.startswith(f"{name}."))
        known = stored.get(name)
        if isinstance(value, Mapping) and isinstance(known, Mapping) and inner:
            if not _changes_only(value, known, inner):
                return False
        elif name not in fields or name not in stored:
            return False
    return True
