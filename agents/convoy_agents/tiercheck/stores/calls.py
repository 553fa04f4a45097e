"""Threads for the calls to one store: where it hangs, as NFS does whose server is away, these alone hang."""

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
"""For the calls of one kind to one store."""
ANSWER_SECONDS = 180.0
"""For one operation; longer than the S3 client's own timeouts and tries, and than an NFS server's grace."""
_POLL_SECONDS = 1.0


class ResponseTimer:
    """How long what one call wants of a store is without an answer. Used by several threads at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last_response: dict[object, float] = {}
        """By operation that is under way, when the store last said something."""

    @property
    def silent_seconds(self) -> float:
        """Seconds since the operation was responded of that has waited longest; 0 when none is under way."""
        with self._lock:
            return self._clock() - min(self._last_response.values()) if self._last_response else 0.0

    @contextlib.contextmanager
    def operation(self) -> Iterator[Callable[[], None]]:
        """One is under way meanwhile; what it gives is called when the store says something."""
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
    """Blobs whose operations are watched."""

    def __init__(self, blobs: Blobs, timer: ResponseTimer) -> None:
        self._blobs = blobs
        self._watch = timer

    @property
    def where(self) -> str:
        """The place, for messages."""
        return self._blobs.where

    def put(self, key: str, data: digest.Buffer) -> None:
        """As `Blobs.put`."""
        with self._watch.operation():
            self._blobs.put(key, data)

    def create(self, key: str, data: digest.Buffer) -> bool:
        """As `Blobs.create`."""
        with self._watch.operation():
            return self._blobs.create(key, data)

    def get(self, key: str, span: tuple[int, int] | None = None, limit: int = MAX_TEXT) -> bytes | None:
        """As `Blobs.get`."""
        with self._watch.operation():
            return self._blobs.get(key, span, limit)

    def names(
        self, folder: str, alive: Callable[[], None] = lambda: None, wanted: Container[str] | None = None
    ) -> Listing:
        """As `Blobs.names`."""
        with self._watch.operation() as responded:
            return self._blobs.names(folder, _both(responded, alive), wanted)

    def folders(self, folder: str, alive: Callable[[], None] = lambda: None) -> set[str]:
        """As `Blobs.folders`."""
        with self._watch.operation() as responded:
            return self._blobs.folders(folder, _both(responded, alive))

    def touch(self, key: str) -> bool:
        """As `Blobs.touch`."""
        with self._watch.operation():
            return self._blobs.touch(key)

    def remove(self, key: str) -> None:
        """As `Blobs.remove`."""
        with self._watch.operation():
            self._blobs.remove(key)

    def tidy(self, folder: str, before: float, alive: Callable[[], None] = lambda: None) -> None:
        """As `Blobs.tidy`."""
        with self._watch.operation() as responded:
            self._blobs.tidy(folder, before, _both(responded, alive))

    def refuses_damage(self, key: str) -> bool:
        """As `Blobs.refuses_damage`."""
        with self._watch.operation():
            return self._blobs.refuses_damage(key)


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        first()
        second()

    return call


class Calls:
    """Of one kind to one store. Used from the event loop alone."""

    def __init__(self, where: str, threads: int = THREADS) -> None:
        """`where`: the place, for messages."""
        self._where = where
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "store")
        self._closed = False
        self._running: set[ResponseTimer] = set()

    async def run(self, timer: ResponseTimer, do: Callable[[], T]) -> T:
        """What `do` gives, or raises, which looks into the store by a `TimedBlobs` of this timer.

        StoreError, `retriable`, when the store does not answer: no longer than ANSWER_SECONDS for one
        operation, however many `do` needs. The thread stays where it hangs, since nothing can end it, and is
        of use again should the store come back; once all hang, who waits for one is refused at once.
        """
        if self._closed:
            raise self._replaced()
        loop = asyncio.get_running_loop()

        def call() -> T:
            loop.call_soon_threadsafe(self._running.add, timer)
            try:
                return do()
            finally:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._running.discard, timer)

        work = self._pool.submit(call)
        future = asyncio.wrap_future(work)
        try:
            while not future.done():
                await asyncio.wait({future}, timeout=_POLL_SECONDS)
                if not future.done() and self._hangs(timer):
                    raise StoreError(
                        f"{self._where}: it does not answer within {ANSWER_SECONDS:g} s; it is tried again",
                        retriable=True,
                    )
        finally:
            # One that has not begun does not begin any more.
            work.cancel()
            future.cancel()
        if future.cancelled():
            raise self._replaced()
        return future.result()

    def close(self) -> None:
        """Nothing more is begun; waits for nothing that is under way."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _hangs(self, timer: ResponseTimer) -> bool:
        if timer in self._running:
            return timer.silent_seconds > ANSWER_SECONDS
        return sum(one.silent_seconds > ANSWER_SECONDS for one in self._running) >= self._threads

    def _replaced(self) -> StoreError:
        return StoreError(f"{self._where}: the store was replaced meanwhile", retriable=True)
