"""Limits on concurrent calls: one limit for all nodes together, and one for each node. The second prevents
one slow or hostile node from using all calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class _NodeLimit:
    """The limit of one node. It is deleted when `users` falls to 0."""

    semaphore: asyncio.Semaphore
    users: int = 0
    """Number of tasks that hold `semaphore` or wait for it."""


class ConcurrencyLimits:
    """The concurrency limits of one kind of call. Not thread-safe: only the event loop may use it."""

    def __init__(self, total: int, per_node: int) -> None:
        """`total`: maximum concurrent calls of all nodes together. `per_node`: maximum concurrent calls of
        each node.
        """
        self._all = asyncio.Semaphore(total)
        self._per_node = per_node
        self._nodes: dict[str, _NodeLimit] = {}

    def full(self, node: str) -> bool:
        """Return True if another call of this node would have to wait."""
        own = self._nodes.get(node)
        return self._all.locked() or (own is not None and own.semaphore.locked())

    @asynccontextmanager
    async def acquire(self, node: str) -> AsyncIterator[None]:
        """Count a call of this node within the block. Wait first for the node's own limit, then for the
        common limit.
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
