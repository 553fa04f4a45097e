"""A cache of table rows, which all open pages share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from convoy_crds.meta import Model
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.core.rows import Row

M = TypeVar("M", bound=Model)


class RowCache(Generic[M]):
    """The rows of one table. A row is built again when its object changes or after `SECONDS`."""

    SECONDS = 5.0
    """Seconds after which an unchanged row is built again, so that the ages in it increase."""

    def __init__(self, make: Callable[[ParsedObject[M], datetime], Row]) -> None:
        """`make` builds the row of an object."""
        self._make = make
        self._known: dict[str, tuple[int, datetime, Row]] = {}

    def row(self, parsed: ParsedObject[M], now: datetime) -> Row:
        """Return the table row of an object, from the cache if possible."""
        version, at, found = self._known.get(parsed.uid, (-1, now, None))
        if found is None or version != parsed.version or (now - at).total_seconds() >= self.SECONDS:
            found = self._make(parsed, now)
            self._known[parsed.uid] = (parsed.version, now, found)
        return found

    def remove(self, uid: str) -> None:
        """Remove the row of a deleted object."""
        self._known.pop(uid, None)


def newest_first(parsed: ParsedObject[M]) -> tuple[float, str, str]:
    """Return the sort key that puts the newest object first. An unreadable object comes last."""
    metadata = getattr(parsed.model, "metadata", None)
    created = metadata.creation_timestamp if metadata is not None else None
    return (-created.timestamp() if created else 0.0, parsed.namespace, parsed.name)
