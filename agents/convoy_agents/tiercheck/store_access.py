"""Access to a job's ShardStore from the event loop: one user at a time, in a thread if work takes long."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from convoy_agents.tiercheck.shard_store import ShardStore

T = TypeVar("T")


class StoreAccess(ABC):
    """Serialises the users of one ShardStore, and wakes tasks that wait for a change."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Condition()

    @abstractmethod
    async def _open(self) -> ShardStore:
        """Return the store; open it on first use. The caller holds the lock. OSError if there is no store."""

    async def use(self, do: Callable[[ShardStore], T]) -> T:
        """Run `do` on the store in a thread, under the lock. OSError if there is no store; BudgetExceeded
        if the node has no memory for it.
        """
        return await self.finish(self.use_in_turn(do))

    async def use_in_turn(self, do: Callable[[ShardStore], T]) -> T:
        """Do the same as `use`, for a caller that is never cancelled."""
        async with self._turn:
            store = await self._open()
            found = await asyncio.to_thread(do, store)
        await self.notify_changed()
        return found

    async def use_quietly(self, do: Callable[[ShardStore], T]) -> T:
        """Do the same as `use`, without waking waiting tasks."""
        return await self.finish(self._quietly(do))

    async def _quietly(self, do: Callable[[ShardStore], T]) -> T:
        async with self._turn:
            store = await self._open()
            return await asyncio.to_thread(do, store)

    async def inspect(self, do: Callable[[ShardStore], T]) -> T:
        """Return the result of `do`, which must be quick and change nothing. OSError as `use`."""
        async with self._turn:
            return do(await self._open())

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end, even if the caller is cancelled: a thread cannot be interrupted, and
        half-done work must not be taken for done.
        """
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # the caller gets the exception through the shield

    async def notify_changed(self) -> None:
        """Wake tasks that wait for a change."""
        async with self._changed:
            self._changed.notify_all()

    async def wait_until(self, holds: Callable[[ShardStore], T | None], seconds: float) -> T | None:
        """Return the first result of `holds` that is not None, checked after each change; None after so
        many seconds.
        """
        deadline = time.monotonic() + seconds
        while True:
            # Lock before `holds` runs, so that a change after it is not missed.
            async with self._changed:
                found = await self.inspect(holds)
                left = deadline - time.monotonic()
                if found is not None or left <= 0:
                    return found
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._changed.wait()
