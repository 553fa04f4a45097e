"""How much goes on at once, and how much of it for one node: who is slow, or means harm, holds up few."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Lanes:
    """Of the event loop."""

    def __init__(self, most: int, of_one: int) -> None:
        """`of_one`: of which one node has so many at most."""
        self._all = asyncio.Semaphore(most)
        self._of_one = of_one
        self._own: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    def full(self, node: str) -> bool:
        """Whether a node would have to wait for one."""
        own = self._own.get(node)
        return self._all.locked() or (own is not None and own.locked())

    @asynccontextmanager
    async def of(self, node: str) -> AsyncIterator[None]:
        """One, as soon as there is one: a node waits behind its own first, and only then behind others."""
        own = self._own.setdefault(node, asyncio.Semaphore(self._of_one))
        self._users[node] += 1
        try:
            async with own, self._all:
                yield
        finally:
            self._users[node] -= 1
            if not self._users[node]:
                del self._users[node], self._own[node]
