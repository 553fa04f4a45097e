"""A limit on open connections that idle connections cannot exhaust."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class ConnectionLimit(Generic[T]):
    """The open connections with their owners, in order of arrival."""

    def __init__(self, total: int, per_owner: int | None = None) -> None:
        """Set the maximum numbers of connections: `total` for all owners together, and `per_owner` for each
        single owner (default: `total`).
        """
        self._total = total
        self._per_owner = total if per_owner is None else per_owner
        self._owners: dict[T, str] = {}

    def __iter__(self) -> Iterator[T]:
        return iter(self._owners)

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, connection: T, owner: str) -> T | None:
        """Add a connection, or move a connection that was added before to the end. Return the connection
        that the caller must close; None if no limit is exceeded.

        If the owner has reached its own limit, the result is the owner's oldest connection. If the total
        limit is reached, the result is the oldest connection of the owner with the most connections. An
        owner therefore never loses a connection to an owner with more connections.
        """
        known = self._owners.pop(connection, None) is not None
        out = None if known else self._excess(owner)
        self._owners[connection] = owner
        if out is not None:
            del self._owners[out]
        return out

    def remove(self, connection: T) -> None:
        """Remove a closed connection."""
        self._owners.pop(connection, None)

    def _excess(self, owner: str) -> T | None:
        held = Counter(self._owners.values())
        if held[owner] < self._per_owner:
            if len(self._owners) < self._total:
                return None
            owner = held.most_common(1)[0][0]
        return next(one for one, holder in self._owners.items() if holder == owner)
