"""One at a time for the same thing, any number for others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Thing:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    """Who works on it, and who waits: a lock that is handed over looks free for a moment."""


class Turns(Generic[K]):
    """Knows of a thing for as long as somebody works on it or waits."""

    def __init__(self) -> None:
        self._things: dict[K, _Thing] = {}

    def __len__(self) -> int:
        return len(self._things)

    @asynccontextmanager
    async def turn(self, key: K) -> AsyncIterator[None]:
        """Waits until nobody else works on it."""
        thing = self._things.setdefault(key, _Thing())
        thing.users += 1
        try:
            async with thing.lock:
                yield
        finally:
            thing.users -= 1
            if not thing.users:
                del self._things[key]
