"""A lock for each key: one task at a time for the same key, any number for different keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Lock:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    """Tasks that hold the lock or wait for it. While the lock is handed over, `locked()` is False for a
    moment.
    """


class KeyedLock(Generic[K]):
    """Locks by key. A key exists while a task holds its lock or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[K, _Lock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        """Hold the lock of a key, after waiting until it is free."""
        lock = self._locks.setdefault(key, _Lock())
        lock.users += 1
        try:
            async with lock.lock:
                yield
        finally:
            lock.users -= 1
            if not lock.users:
                del self._locks[key]
