"""Concurrency limits for all nodes together and for each node, so that a slow or hostile node delays few
others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class _NodeLimit:
    """The limit of one node. It exists while it has users."""

    semaphore: asyncio.Semaphore
    users: int = 0
    """Number of tasks that hold the semaphore or wait for it."""


class ConcurrencyLimits:
    """The concurrency limits of one kind of call. Not thread-safe: used by the event loop alone."""

    def __init__(self, total: int, per_node: int) -> None:
        """`total`: the limit for all nodes together. `per_node`: the limit for one node."""
        self._all = asyncio.Semaphore(total)
        self._per_node = per_node
        self._nodes: dict[str, _NodeLimit] = {}

    def full(self, node: str) -> bool:
        """Return True if a call of this node would have to wait."""
        own = self._nodes.get(node)
        return self._all.locked() or (own is not None and own.semaphore.locked())

    @asynccontextmanager
    async def acquire(self, node: str) -> AsyncIterator[None]:
        """Hold a place for a call of this node. It waits for the node's own limit first, then for the
        common one.
        """
        if (own := self._nodes.get(node)) is None:
            own = self._nodes[node] = _NodeLimit(asyncio.Semaphore(self._per_node))
        own.users += 1
        try:
            async with own.semaphore, self._all:
                yield
        finally:
            own.users -= 1
            if not own.users:
                del self._nodes[node]
