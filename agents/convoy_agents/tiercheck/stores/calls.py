"""Threads for the calls to one store. When a store hangs, for example NFS without its server, only these
threads hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.stores.blobs import MAX_TEXT, Blobs, Listing
from convoy_agents.tiercheck.stores.errors import StoreError

T = TypeVar("T")

THREADS = 8
"""Threads for one kind of calls to one store."""
ANSWER_SECONDS = 180.0
"""Timeout of one operation in seconds. It exceeds the S3 client's own timeouts and retries, and an NFS
server's grace.
"""
_POLL_SECONDS = 1.0


class ResponseTimer:
    """A timer for the operations of one call: how long the store has not responded. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last_response: dict[object, float] = {}
        """Time of the store's last response, by running operation."""

    @property
    def silent_seconds(self) -> float:
        """The longest time in seconds that a running operation has had no response; 0 if none is running."""
        with self._lock:
            return self._clock() - min(self._last_response.values()) if self._last_response else 0.0

    @contextlib.contextmanager
    def operation(self) -> Iterator[Callable[[], None]]:
        """Time one operation. Yield a function to call at each response of the store."""
        this = object()

        def alive() -> None:
            with self._lock:
                self._last_response[this] = self._clock()

        alive()
        try:
            yield alive
        finally:
            with self._lock:
                del self._last_response[this]


class TimedBlobs:
    """Blobs whose operations are timed."""

    def __init__(self, blobs: Blobs, timer: ResponseTimer) -> None:
        self._blobs = blobs
        self._timer = timer

    @property
    def where(self) -> str:
        """The store's place, for messages."""
        return self._blobs.where

    def put(self, key: str, data: digest.Buffer) -> None:
        """See `Blobs.put`."""
        with self._timer.operation():
            self._blobs.put(key, data)

    def create(self, key: str, data: digest.Buffer) -> bool:
        """See `Blobs.create`."""
        with self._timer.operation():
            return self._blobs.create(key, data)

    def get(self, key: str, span: tuple[int, int] | None = None, limit: int = MAX_TEXT) -> bytes | None:
        """See `Blobs.get`."""
        with self._timer.operation():
            return self._blobs.get(key, span, limit)

    def names(
        self, folder: str, alive: Callable[[], None] = lambda: None, wanted: Container[str] | None = None
    ) -> Listing:
        """See `Blobs.names`."""
        with self._timer.operation() as responded:
            return self._blobs.names(folder, _both(responded, alive), wanted)

    def folders(self, folder: str, alive: Callable[[], None] = lambda: None) -> set[str]:
        """See `Blobs.folders`."""
        with self._timer.operation() as responded:
            return self._blobs.folders(folder, _both(responded, alive))

    def touch(self, key: str) -> bool:
        """See `Blobs.touch`."""
        with self._timer.operation():
            return self._blobs.touch(key)

    def remove(self, key: str) -> None:
        """See `Blobs.remove`."""
        with self._timer.operation():
            self._blobs.remove(key)

    def tidy(self, folder: str, before: float, alive: Callable[[], None] = lambda: None) -> None:
        """See `Blobs.tidy`."""
        with self._timer.operation() as responded:
            self._blobs.tidy(folder, before, _both(responded, alive))

    def refuses_damage(self, key: str) -> bool:
        """See `Blobs.refuses_damage`."""
        with self._timer.operation():
            return self._blobs.refuses_damage(key)


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        first()
        second()

    return call


class Calls:
    """One kind of calls to one store. Used from the event loop alone."""

    def __init__(self, where: str, threads: int = THREADS) -> None:
        """`where`: the store's place, for messages."""
        self._where = where
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "store")
        self._closed = False
        self._running: set[ResponseTimer] = set()

    async def run(self, timer: ResponseTimer, do: Callable[[], T]) -> T:
        """Run `do` in a thread and return its result. `do` must use the store through TimedBlobs with this
        timer.

        A retriable StoreError is raised when one operation takes longer than ANSWER_SECONDS, however many
        operations `do` has. A hanging thread cannot be stopped; it becomes usable again if the store
        recovers. While all threads hang, waiting callers get the error at once.
        """
        if self._closed:
            raise self._replaced()
        loop = asyncio.get_running_loop()

        def call() -> T:
            loop.call_soon_threadsafe(self._running.add, timer)
            try:
                return do()
            finally:
                with contextlib.suppress(RuntimeError):  # the event loop is closed
                    loop.call_soon_threadsafe(self._running.discard, timer)

        work = self._pool.submit(call)
        future = asyncio.wrap_future(work)
        try:
            while not future.done():
                await asyncio.wait({future}, timeout=_POLL_SECONDS)
                if not future.done() and self._hangs(timer):
                    raise StoreError(
                        f"{self._where}: it does not answer within {ANSWER_SECONDS:g} s; Convoy tries again",
                        retriable=True,
                    )
        finally:
            # A call that has not started yet is dropped.
            work.cancel()
            future.cancel()
        if future.cancelled():
            raise self._replaced()
        return future.result()

    def close(self) -> None:
        """Refuse further calls. Do not wait for running ones."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _hangs(self, timer: ResponseTimer) -> bool:
        if timer in self._running:
            return timer.silent_seconds > ANSWER_SECONDS
        return sum(one.silent_seconds > ANSWER_SECONDS for one in self._running) >= self._threads

    def _replaced(self) -> StoreError:
        return StoreError(
            f"{self._where}: the store's settings were changed during the call; Convoy tries again",
            retriable=True,
        )
