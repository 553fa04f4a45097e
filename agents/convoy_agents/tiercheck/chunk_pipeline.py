"""The two ends of a shard's transfer. While one chunk is on the network, the sender reads the next chunks
and the receiver checks and writes the chunks before it. Both ends hold a bounded number of chunks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

K = TypeVar("K")
T = TypeVar("T")

READ_AHEAD = 2
"""Maximum number of chunks of a transfer that are read before the network accepts them."""
WRITE_BEHIND = 2
"""Maximum number of received chunks of a transfer that are being checked and written."""


async def read_ahead(
    indexes: Iterable[K], read: Callable[[K], Awaitable[T]], limit: int = READ_AHEAD
) -> AsyncGenerator[T, None]:
    """Yield the results of `read` in the order of `indexes`. Up to `limit` calls run before their results
    are needed. Raise the error of a call in its turn.

    Callers close the generator, which cancels the calls that are left.
    """
    left = iter(indexes)
    running: deque[asyncio.Future[T]] = deque()

    def start() -> None:
        for index in left:
            running.append(asyncio.ensure_future(read(index)))
            running[-1].add_done_callback(_retrieve)
            return

    try:
        for _ in range(limit):
            start()
        while running:
            found = await running.popleft()
            start()
            yield found
    finally:
        for one in running:
            one.cancel()


class WriteBehind:
    """Writes of received chunks that run while the next chunk arrives."""

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)
        self._running: set[asyncio.Future[Any]] = set()
        self._error: BaseException | None = None

    async def start(self, write: Callable[[], Awaitable[object]]) -> None:
        """Start a write once fewer than `limit` writes run. Raise the error of an earlier write."""
        await self._free.acquire()
        self.raise_error()
        task = asyncio.ensure_future(write())
        self._running.add(task)
        task.add_done_callback(self._done)

    def raise_error(self) -> None:
        """Raise the first error of a write."""
        if self._error is not None:
            raise self._error

    async def wait(self) -> None:
        """Wait until no write runs."""
        while self._running:
            await asyncio.wait(self._running)

    def cancel(self) -> None:
        """Cancel the writes that run."""
        for one in self._running:
            one.cancel()

    def _done(self, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        self._free.release()
        if not task.cancelled() and self._error is None:
            self._error = task.exception()


@asynccontextmanager
async def write_behind(limit: int = WRITE_BEHIND) -> AsyncIterator[WriteBehind]:
    """Yield a WriteBehind whose writes are complete when the block ends. Raise the first error of a write,
    at the latest at the end of the block.
    """
    writes = WriteBehind(limit)
    try:
        yield writes
        await writes.wait()
        writes.raise_error()
    finally:
        writes.cancel()


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Mark the exception of a task as retrieved. Nobody awaits the task after a cancellation."""
    if not task.cancelled():
        task.exception()
