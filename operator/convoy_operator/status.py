"""What of a status is to be written, and when. Pure but for the memory of the last write."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from convoy_controllers.keys import Key

PROGRESS_FIELDS = frozenset({"progress", "checkpoint", "goodput"})
"""Fields that move while nothing else happens; they are written as rarely as etcd's budget asks."""


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) from `old` to `new`; empty when they are equal."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := merge_patch(before, value):
                patch[name] = inner
        elif name not in old or before != value:
            patch[name] = value
    return patch


class ProgressThrottle:
    """Spaces the writes that only tell of progress; any other write goes at once and takes the turn's place.

    There is one turn for each write that the rate allows, and each is of one job: the first that is free once
    the job's last write is old enough. So jobs that began together do not write together. A turn that its job
    does not take in `seconds` lapses.
    """

    def __init__(self, seconds: float, writes_per_second: float) -> None:
        self._seconds = seconds
        self._rate = writes_per_second
        self._written: dict[Key, float] = {}
        self._turns: dict[Key, int] = {}
        """In units of the time between two writes."""
        self._taken: set[int] = set()

    def turn(self, key: Key, jobs: int, now: float) -> float:
        """Seconds until the turn of one of `jobs` active jobs, 0 while it may be taken."""
        longest = self._seconds + jobs / self._rate
        at = self._turns.get(key, math.inf) / self._rate
        # One too far ahead was given while there were more jobs.
        if not now - self._seconds <= at <= now + longest:
            self._release(key)
            at = self._take(key, max(now, self._written.get(key, -math.inf) + self._seconds)) / self._rate
        return max(0.0, at - now)

    def _take(self, key: Key, earliest: float) -> int:
        turn = math.ceil(earliest * self._rate)
        while turn in self._taken:
            turn += 1
        self._turns[key] = turn
        self._taken.add(turn)
        return turn

    def _release(self, key: Key) -> None:
        self._taken.discard(self._turns.pop(key, -1))

    def wait(
        self, key: Key, stored: Mapping[str, Any], patch: Mapping[str, Any], jobs: int, now: float
    ) -> float:
        """Seconds until `patch` of the `stored` status may be written; 0 for now.

        The first progress and the first checkpoint are news and go at once; so does what a job that comes up
        or goes away still has to tell, since its pods may not be there to be asked again.
        """
        turned = "cause" in patch.get("goodput", ())
        known = patch.keys() <= PROGRESS_FIELDS & stored.keys()
        steady = stored.get("phase") == "Running" and known and not turned
        return self.turn(key, jobs, now) if steady else 0.0

    def written(self, key: Key, now: float) -> None:
        """Notes a write of the status."""
        self._written[key] = now
        self._release(key)

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._written.pop(key, None)
        self._release(key)
