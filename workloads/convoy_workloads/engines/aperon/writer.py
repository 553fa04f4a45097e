"""The thread that writes: it logs and applies operations in their order, and makes them durable together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from convoy_workloads.engines.aperon.errors import InvalidInput, NoSpace

MOST_TOGETHER = 64
"""Most tasks that share one flush to the disk."""


class WritesFull(Exception):
    """Raised if too many writes wait."""


class WriteRefused(Exception):
    """Raised by a write that the index has no room for. Nothing was written."""


class WriterEnded(Exception):
    """Raised if the writer has ended or has failed. The message says why."""


class Target(Protocol):
    """The place of what is written."""

    def sync(self) -> None:
        """Wait until all operations are on the disk."""
        ...


@dataclass(slots=True)
class _Task:
    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class Writer:
    """The thread and its bounded queue. `submit` is called in an event loop."""

    def __init__(self, target: Target, most: int, *, sync: bool) -> None:
        """`most`: tasks that may wait. `sync`: acknowledge when the operations are on the disk."""
        self._target, self._most, self._sync = target, most, sync
        self._changed = threading.Condition()
        self._tasks: deque[_Task] = deque()
        self._running = 0
        self._stopping = False
        self.error: BaseException | None = None
        """The error that has ended the writer."""
        self._thread = threading.Thread(target=self._run, name="convoy-writes", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        """Return the number of tasks that wait or run."""
        return len(self._tasks) + self._running

    def submit(self, function: Callable[[], Any], *, bounded: bool = True) -> asyncio.Future[Any]:
        """Call a function in the thread after those before it. The future has its result once everything
        that it wrote is on the disk.

        `bounded`: raise WritesFull if too many tasks wait. Raises WriterEnded.
        """
        loop = asyncio.get_running_loop()
        one = _Task(function, loop, loop.create_future())
        with self._changed:
            if self._stopping or self.error is not None:
                raise WriterEnded(f"the writer has ended: {self.error or 'this replica is ending'}")
            if bounded and len(self._tasks) >= self._most:
                raise WritesFull
            self._tasks.append(one)
            self._changed.notify()
        return one.done

    def close(self, seconds: float = 30.0) -> None:
        """Do what waits, then end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while batch := self._next():
            try:
                for one in batch:
                    _call(one)
                if self._sync:
                    self._target.sync()
            except BaseException as error:  # Every task that waits gets it, and the engine ends.
                self._fail(batch, error)
                return
            self._running = 0
            for one in batch:
                _post(one)

    def _next(self) -> Sequence[_Task]:
        """Wait for tasks. Return none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._tasks) or self._stopping)
            self._running = min(len(self._tasks), MOST_TOGETHER)
            return [self._tasks.popleft() for _ in range(self._running)]

    def _fail(self, batch: Sequence[_Task], error: BaseException) -> None:
        with self._changed:
            self.error = error
            left = [*batch, *self._tasks]
            self._tasks.clear()
            self._running = 0
        for one in left:
            one.error = one.error or WriterEnded(f"the write failed: {error}")
            _post(one)


def _call(one: _Task) -> None:
    """Call a task's function. An error of its input is the task's own; others end the writer."""
    try:
        one.result = one.function()
    except NoSpace as error:
        one.error = WriteRefused(str(error))
    except (InvalidInput, WriteRefused) as error:
        one.error = error


def _post(one: _Task) -> None:
    def resolve() -> None:
        if one.done.done():
            return
        if one.error is not None:
            one.done.set_exception(one.error)
        else:
            one.done.set_result(one.result)

    with contextlib.suppress(RuntimeError):  # The loop has ended.
        one.loop.call_soon_threadsafe(resolve)
