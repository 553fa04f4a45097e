"""Connections that are open at a time: bounded, and none is kept out by those that stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class ConnectionLimit(Generic[T]):
    """Those that are there, each of somebody; who came first is first."""

    def __init__(self, most: int, each: int | None = None) -> None:
        """`most`: of all together; `each`: of one of them, where that is less."""
        self._most = most
        self._each = most if each is None else each
        self._here: dict[T, str] = {}

    def __iter__(self) -> Iterator[T]:
        return iter(self._here)

    def __len__(self) -> int:
        return len(self._here)

    def add(self, one: T, whose: str) -> T | None:
        """Takes one in, or makes one that is there the last to have come; the one that has to go for it.

        That is the first of somebody who has their share, or, when all places are taken, of who has most of
        them: so nobody loses one to those who have more.
        """
        known = self._here.pop(one, None) is not None
        out = None if known else self._too_many(whose)
        self._here[one] = whose
        if out is not None:
            del self._here[out]
        return out

    def remove(self, one: T) -> None:
        """It is gone."""
        self._here.pop(one, None)

    def _too_many(self, whose: str) -> T | None:
        held = Counter(self._here.values())
        if held[whose] < self._each:
            if len(self._here) < self._most:
                return None
            whose = held.most_common(1)[0][0]
        return next(one for one, owner in self._here.items() if owner == whose)
