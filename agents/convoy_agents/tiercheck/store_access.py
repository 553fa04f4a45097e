"""Access to a job's ShardStore from the event loop. Only one task uses it at a time, in a thread if the
work takes long.
"""

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
    """Serialises the tasks that use one ShardStore. After each change of the ShardStore, it wakes the tasks
    that wait for a change.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Condition()

    @abstractmethod
    async def _open(self) -> ShardStore:
        """Return the store. Open it on first use. The caller must hold the lock. Raises OSError if that
        fails.
        """

    async def use(self, do: Callable[[ShardStore], T]) -> T:
        """Run `do` on the store in a thread, under the lock. Return the result, and wake the waiting tasks.

        Raises OSError if the store cannot be opened, and BudgetExceeded if the node has no memory for it.
        If the caller is cancelled, `do` still runs to its end.
        """
        return await self.finish(self.use_in_turn(do))

    async def use_in_turn(self, do: Callable[[ShardStore], T]) -> T:
        """Do the same as `use`, but stop if the caller is cancelled. Only a task that nobody cancels may
        call this.
        """
        async with self._turn:
            store = await self._open()
            found = await asyncio.to_thread(do, store)
        await self.notify_changed()
        return found

    async def use_quietly(self, do: Callable[[ShardStore], T]) -> T:
        """Do the same as `use`, but do not wake the waiting tasks."""
        return await self.finish(self._quietly(do))

    async def _quietly(self, do: Callable[[ShardStore], T]) -> T:
        async with self._turn:
            store = await self._open()
            return await asyncio.to_thread(do, store)

    async def inspect(self, do: Callable[[ShardStore], T]) -> T:
        """Return the result of `do`, which runs on the event loop. So it must be fast and must not change
        the store. Raises OSError like `use`.
        """
        async with self._turn:
            return do(await self._open())

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end, even if the caller is cancelled. Otherwise a cancelled caller would
        release the lock while the work continues in a thread, because a thread cannot be interrupted.
        """
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            # The caller already gets the exception through asyncio.shield, so mark it as retrieved here.
            task.exception()

    async def notify_changed(self) -> None:
        """Wake the tasks that wait in `wait_until`."""
        async with self._changed:
            self._changed.notify_all()

    async def wait_until(self, holds: Callable[[ShardStore], T | None], seconds: float) -> T | None:
        """Call `holds` now and after each change. Return its first result that is not None, or None after
        `seconds`.
        """
        deadline = time.monotonic() + seconds
        while True:
            # Hold the condition's lock while `holds` runs, so that a change between `holds` and the wait is
            # not missed.
            async with self._changed:
                found = await self.inspect(holds)
                left = deadline - time.monotonic()
                if found is not None or left <= 0:
                    return found
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._changed.wait()
