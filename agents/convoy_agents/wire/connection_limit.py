"""A limit on open connections that idle connections cannot exhaust."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class ConnectionLimit(Generic[T]):
    """The open connections with their owners, in order of arrival."""

    def __init__(self, most: int, each: int | None = None) -> None:
        """Limit all connections to `most`, and those of one owner to `each` (default: `most`)."""
        self._most = most
        self._each = most if each is None else each
        self._here: dict[T, str] = {}

    def __iter__(self) -> Iterator[T]:
        return iter(self._here)

    def __len__(self) -> int:
        return len(self._here)

    def add(self, one: T, whose: str) -> T | None:
        """Add a connection, or move a known one to the end. Return the connection to close instead, if any.

        If the owner has reached its own limit, this is the owner's oldest connection. If the total limit is
        reached, it is the oldest one of the owner with the most connections. Thus no owner loses a
        connection to an owner with more.
        """
        known = self._here.pop(one, None) is not None
        out = None if known else self._too_many(whose)
        self._here[one] = whose
        if out is not None:
            del self._here[out]
        return out

    def remove(self, one: T) -> None:
        """Remove a closed connection."""
        self._here.pop(one, None)

    def _too_many(self, whose: str) -> T | None:
        held = Counter(self._here.values())
        if held[whose] < self._each:
            if len(self._here) < self._most:
                return None
            whose = held.most_common(1)[0][0]
        return next(one for one, owner in self._here.items() if owner == whose)
