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
    """Number of tasks that hold the lock or wait for it. `lock.locked()` is no substitute: it is False for
    a moment while the lock passes from one task to the next.
    """


class KeyedLock(Generic[K]):
    """Locks by key. The lock of a key exists only while a task holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[K, _Lock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        """Hold the lock of a key within the block. Wait until the lock is free."""
        lock = self._locks.setdefault(key, _Lock())
        lock.users += 1
        try:
            async with lock.lock:
                yield
        finally:
            lock.users -= 1
            if not lock.users:
                del self._locks[key]
