"""Fields of applied objects that another manager took over, and the back-off for applying them again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from convoy_controllers.cached import CachedObject
from convoy_operator.limits import backoff

_MIN_BACKOFF, _MAX_BACKOFF = 2.0, 600.0
"""Seconds between two repairs of one object: the shortest and the longest back-off."""


@dataclass(slots=True)
class _Applied:
    """One applied object."""

    owned_fields: int
    """`CachedObject.owned_fields` as the API server returned it after the newest apply."""
    times: int = 0
    """Number of repairs so far."""
    not_before: float = 0.0
    early: bool = False
    """True if the newest plan wanted a repair before the back-off ended."""


class FieldConflicts:
    """The field conflicts of all applied objects, by uid of their owner. Times are monotonic seconds.

    A manager that writes a field takes its ownership from the operator. Two managers that both insist would
    write forever, so the operator waits longer before each repair.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._owners: dict[str, dict[str, _Applied]] = {}
        """By uid of the owner, then by uid of the object."""

    def record(self, owner: str, applied: CachedObject) -> None:
        """Record an object as the API server returned it after an apply."""
        known = self._owners.setdefault(owner, {}).setdefault(applied.uid, _Applied(applied.owned_fields))
        known.owned_fields, known.early = applied.owned_fields, False

    def due(self, owner: str, found: CachedObject) -> bool:
        """Return True if the object's fields must be applied again now.

        An object that an earlier operator process applied is applied once more. That changes nothing if its
        fields are intact.
        """
        known = self._owners.get(owner, {}).get(found.uid)
        if known is None:
            return True
        known.early = False
        if known.owned_fields == found.owned_fields:
            return False
        if self._clock() < known.not_before:
            known.early = True
            return False
        known.not_before = self._clock() + backoff(known.times, _MIN_BACKOFF, _MAX_BACKOFF)
        known.times += 1
        return True

    def wait(self, owner: str) -> float | None:
        """Return the seconds until the next repair among the objects that the newest plan applies for
        `owner`; None if none waits.
        """
        early = [one for one in self._owners.get(owner, {}).values() if one.early]
        for one in early:
            # A later plan may no longer apply this object.
            one.early = False
        return max(0.0, min(one.not_before - self._clock() for one in early)) if early else None

    def drop(self, owner: str, uid: str = "") -> None:
        """Drop a deleted object, or all objects of the owner if `uid` is empty."""
        if not uid:
            self._owners.pop(owner, None)
        elif owner in self._owners:
            self._owners[owner].pop(uid, None)
