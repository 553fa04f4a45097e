"""What of a status is to be written, and when. Pure but for the memory of the last write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_operator.keys import Key

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
    """Spaces the writes that only tell of progress; any other write goes at once and resets the clock."""

    def __init__(self, seconds: float, writes_per_second: float) -> None:
        self._seconds = seconds
        self._rate = writes_per_second
        self._written: dict[Key, float] = {}

    def interval(self, jobs: int) -> float:
        """Seconds between two progress writes of one job while `jobs` are active."""
        return max(self._seconds, jobs / self._rate)

    def wait(
        self, key: Key, stored: Mapping[str, Any], patch: Mapping[str, Any], jobs: int, now: float
    ) -> float:
        """Seconds until `patch` of the `stored` status may be written; 0 for now.

        The first progress and the first checkpoint are news and go at once; so does what a job that comes up
        or goes away still has to tell, since its pods may not be there to be asked again.
        """
        last = self._written.get(key)
        turned = "cause" in patch.get("goodput", ())
        known = patch.keys() <= PROGRESS_FIELDS & stored.keys()
        steady = stored.get("phase") == "Running" and known and not turned
        if last is None or not steady:
            return 0.0
        return max(0.0, last + self.interval(jobs) - now)

    def written(self, key: Key, now: float) -> None:
        """Notes a write of the status."""
        self._written[key] = now

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._written.pop(key, None)
