"""One at a time for the same thing, any number for others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Turns(Generic[K]):
    """Knows of a thing for as long as somebody works on it or waits."""

    def __init__(self) -> None:
        self._locks: dict[K, asyncio.Lock] = {}

    @asynccontextmanager
    async def turn(self, key: K) -> AsyncIterator[None]:
        """Waits until nobody else works on it."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._locks.pop(key, None)
