"""Finds fields of applied objects that another manager took over, and delays each repair by a back-off."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from convoy_controllers.cached import CachedObject
from convoy_operator.limits import backoff

_MIN_BACKOFF, _MAX_BACKOFF = 2.0, 600.0
"""Minimum and maximum back-off in seconds between two repairs of one object."""


@dataclass(slots=True)
class _Applied:
    """The operator's ownership of the fields of one applied object, and the repairs of the object."""

    owned_fields: int
    """`CachedObject.owned_fields` as the API server returned it after the newest apply."""
    repairs: int = 0
    """Number of repairs of the object so far."""
    not_before: float = 0.0
    early: bool = False
    """True if the newest plan found a conflict, but the back-off had not ended."""


class FieldConflicts:
    """The field conflicts of all applied objects, by uid of their owner. Times are monotonic seconds.

    A manager that writes a field takes the ownership of the field from the operator. If the operator and
    the other manager both write the field again and again, they overwrite each other forever. So the
    operator waits longer before each repair.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._objects: dict[str, dict[str, _Applied]] = {}
        """The state of each applied object, by uid of its owner and then by its own uid."""

    def record(self, owner: str, applied: CachedObject) -> None:
        """Record which fields of an object the operator owns. `applied` is the object as the API server
        returned it after an apply.
        """
        known = self._objects.setdefault(owner, {}).setdefault(applied.uid, _Applied(applied.owned_fields))
        known.owned_fields, known.early = applied.owned_fields, False

    def due(self, owner: str, found: CachedObject) -> bool:
        """Return True if the object's fields must be applied again now.

        This includes an object that an earlier operator process applied. Applying it once more changes
        nothing if its fields are intact.
        """
        known = self._objects.get(owner, {}).get(found.uid)
        if known is None:
            return True
        known.early = False
        if known.owned_fields == found.owned_fields:
            return False
        if self._clock() < known.not_before:
            known.early = True
            return False
        known.not_before = self._clock() + backoff(known.repairs, _MIN_BACKOFF, _MAX_BACKOFF)
        known.repairs += 1
        return True

    def wait(self, owner: str) -> float | None:
        """Return the seconds until the next delayed repair of an object that the newest plan applies.
        Return None if no repair is delayed.
        """
        early = [one for one in self._objects.get(owner, {}).values() if one.early]
        for one in early:
            # Reset `early`, because a later plan may no longer apply this object.
            one.early = False
        return max(0.0, min(one.not_before - self._clock() for one in early)) if early else None

    def drop(self, owner: str, uid: str = "") -> None:
        """Drop the state of one deleted object, or of all the owner's objects if `uid` is empty."""
        if not uid:
            self._objects.pop(owner, None)
        elif owner in self._objects:
            self._objects[owner].pop(uid, None)
