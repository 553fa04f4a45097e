"""Limits on what goes on at once, in all and for one node: a slow or hostile node holds up few."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class _NodeLimit:
    """The limit of one node, for as long as it has users."""

    semaphore: asyncio.Semaphore
    users: int = 0
    """Tasks that hold it or wait for it."""


class ConcurrencyLimits:
    """The limits of one kind of call. Used by the event loop alone."""

    def __init__(self, most: int, of_one: int) -> None:
        """`most`: the limit for all nodes together. `of_one`: the limit for one node."""
        self._all = asyncio.Semaphore(most)
        self._of_one = of_one
        self._nodes: dict[str, _NodeLimit] = {}

    def full(self, node: str) -> bool:
        """Return whether a node would have to wait."""
        own = self._nodes.get(node)
        return self._all.locked() or (own is not None and own.semaphore.locked())

    @asynccontextmanager
    async def of(self, node: str) -> AsyncIterator[None]:
        """Hold one place, as soon as there is one: a node waits for its own first, then for all nodes'."""
        if (own := self._nodes.get(node)) is None:
            own = self._nodes[node] = _NodeLimit(asyncio.Semaphore(self._of_one))
        own.users += 1
        try:
            async with own.semaphore, self._all:
                yield
        finally:
            own.users -= 1
            if not own.users:
                del self._nodes[node]
