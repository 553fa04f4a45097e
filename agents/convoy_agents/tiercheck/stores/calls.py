"""Runs the calls to a store in threads of their own. If a store hangs, for example NFS without its server,
only these threads hang.
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
"""Number of threads for each kind of call to each store."""
ANSWER_SECONDS = 180.0
"""Timeout in seconds of one operation. It is longer than the S3 client's own timeouts and retries, and
longer than the grace period of an NFS server.
"""
_POLL_SECONDS = 1.0


class ResponseTimer:
    """Measures how long a store has not responded to the operations of one call. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last_response: dict[object, float] = {}
        """Time of the store's last response to each running operation, in seconds of the timer's clock."""

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last response to the running operation that has waited longest; 0 if none is
        running.
        """
        with self._lock:
            return self._clock() - min(self._last_response.values()) if self._last_response else 0.0

    @contextlib.contextmanager
    def operation(self) -> Iterator[Callable[[], None]]:
        """Time one operation within the block. Yield a function that the operation must call at each
        response.
        """
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
    """Blobs whose operations are timed by a ResponseTimer."""

    def __init__(self, blobs: Blobs, timer: ResponseTimer) -> None:
        self._blobs = blobs
        self._timer = timer

    @property
    def where(self) -> str:
        """The location of the store, for messages."""
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
    """Runs one kind of call to one store. Only the event loop may use it."""

    def __init__(self, where: str, threads: int = THREADS) -> None:
        """`where`: the location of the store, for messages."""
        self._where = where
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "store")
        self._closed = False
        self._running: set[ResponseTimer] = set()

    async def run(self, timer: ResponseTimer, do: Callable[[], T]) -> T:
        """Run `do` in a thread and return its result. `do` must use the store through TimedBlobs with this
        timer.

        Raises a retriable StoreError if one operation of `do` gets no response for ANSWER_SECONDS. If all
        threads hang in this way, calls that wait for a thread get the error at once.

        A hanging thread cannot be stopped. It becomes usable again if the store recovers.
        """
        if self._closed:
            raise self._replaced()
        loop = asyncio.get_running_loop()

        def call() -> T:
            loop.call_soon_threadsafe(self._running.add, timer)
            try:
                return do()
            finally:
                with contextlib.suppress(RuntimeError):  # RuntimeError: the event loop is closed.
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
            # Cancel the call if it has not started. A running call continues in its thread.
            work.cancel()
            future.cancel()
        if future.cancelled():
            raise self._replaced()
        return future.result()

    def close(self) -> None:
        """Refuse further calls, and do not wait for running calls."""
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
