"""Fields of applied objects that somebody else has taken: put back, less often each time that goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from convoy_controllers.cached import CachedObject
from convoy_operator.limits import backoff

_LEAST, _MOST = 2.0, 600.0
"""Seconds between two times that one object's fields are put back."""


@dataclass(slots=True)
class _Applied:
    """One applied object."""

    owned_fields: int
    """`CachedObject.owned_fields` as the API server returned it after the newest apply."""
    times: int = 0
    """How often its fields were put back."""
    not_before: float = 0.0
    early: bool = False
    """True if the newest plan wanted a field put back before that may be."""


class FieldConflicts:
    """Of all objects that the operator applies, by uid of their owner. Times are monotonic seconds.

    Another manager that writes to a field takes that field from the operator. Two that both insist would
    write for ever, so the operator waits longer each time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._owners: dict[str, dict[str, _Applied]] = {}
        """By uid of the owner, then by the object's uid."""

    def record(self, owner: str, applied: CachedObject) -> None:
        """Note an object as the API server has returned it after an apply."""
        known = self._owners.setdefault(owner, {}).setdefault(applied.uid, _Applied(applied.owned_fields))
        known.owned_fields, known.early = applied.owned_fields, False

    def due(self, owner: str, found: CachedObject) -> bool:
        """Return True if the fields of an object are to be put back now.

        What a process before this one has applied is applied once more, which changes nothing if all is well.
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
        known.not_before = self._clock() + backoff(known.times, _LEAST, _MOST)
        known.times += 1
        return True

    def wait(self, owner: str) -> float | None:
        """Seconds until an object may be put back that the newest plan applies for `owner`; None without."""
        early = [one for one in self._owners.get(owner, {}).values() if one.early]
        for one in early:
            # A later plan may want it no more.
            one.early = False
        return max(0.0, min(one.not_before - self._clock() for one in early)) if early else None

    def drop(self, owner: str, uid: str = "") -> None:
        """Drop an object that is deleted; all of the owner without `uid`."""
        if not uid:
            self._owners.pop(owner, None)
        elif owner in self._owners:
            self._owners[owner].pop(uid, None)
