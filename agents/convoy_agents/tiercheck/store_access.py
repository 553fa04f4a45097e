"""Access to a job's ShardStore from the event loop: one user at a time, in a thread where it takes long."""

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
    """Serialises the users of one ShardStore, and wakes those that wait for a change."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Condition()

    @abstractmethod
    async def _open(self) -> ShardStore:
        """Return the store, which is opened on first use. Called in turn. OSError when there is none."""

    async def use(self, do: Callable[[ShardStore], T]) -> T:
        """Let `do` work with the store in a thread, nobody else meanwhile. OSError when there is none;
        BudgetExceeded when the node has no memory for it.
        """
        return await self.finish(self.use_in_turn(do))

    async def use_in_turn(self, do: Callable[[ShardStore], T]) -> T:
        """Do as `use`, for a caller that goes on to the end."""
        async with self._turn:
            store = await self._open()
            found = await asyncio.to_thread(do, store)
        await self.changed()
        return found

    async def use_quietly(self, do: Callable[[ShardStore], T]) -> T:
        """Do as `use`, for a change that nobody waits for."""
        return await self.finish(self._quietly(do))

    async def _quietly(self, do: Callable[[ShardStore], T]) -> T:
        async with self._turn:
            store = await self._open()
            return await asyncio.to_thread(do, store)

    async def inspect(self, do: Callable[[ShardStore], T]) -> T:
        """Return what `do` sees, quickly and without changing anything. OSError as `use`."""
        async with self._turn:
            return do(await self._open())

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Work to the end, even if the caller is cancelled: a thread cannot be called back, and half-done
        work must not be believed to be done.
        """
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # the caller has received it, and nobody else needs to

    async def changed(self) -> None:
        """Wake those that wait for a change."""
        async with self._changed:
            self._changed.notify_all()

    async def until(self, holds: Callable[[ShardStore], T | None], seconds: float) -> T | None:
        """Return what `holds` gives as soon as it gives something; None when it does not in time."""
        deadline = time.monotonic() + seconds
        while True:
            # Before `holds` runs: a change after it is not missed.
            async with self._changed:
                found = await self.inspect(holds)
                left = deadline - time.monotonic()
                if found is not None or left <= 0:
                    return found
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._changed.wait()
