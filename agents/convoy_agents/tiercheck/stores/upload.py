"""Transfers shards to and from a store, chunk by chunk, with limits on rate, memory and retries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from convoy_agents.backoff import Backoff
from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.stores.errors import Damaged, Stopped, StoreError
from convoy_agents.tiercheck.stores.store import Store
from convoy_controllers.checkpoint.records import Chunk, Manifest

T = TypeVar("T")

_POLL_SECONDS = 0.25
"""Seconds between the checks of a waiting thread for a failure in another thread."""


@dataclass(frozen=True, slots=True)
class Retries:
    """The limits on retries of failed operations."""

    attempts: int = 5
    """Maximum attempts of one operation, including the first."""
    budget: int = 50
    """Maximum retries of all operations of a transfer together. So a store that is down is not retried for
    every chunk.
    """
    first_seconds: float = 0.2
    cap_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """The limits of one shard's transfer."""

    threads: int = 8
    """Maximum number of chunks that are transferred at the same time."""
    bytes_per_second: float = 0
    """Rate limit in bytes per second; 0 for no limit."""
    retries: Retries = Retries()


class StopFlag(Protocol):
    """A flag that cancels a transfer, for example a `threading.Event`."""

    def wait(self, timeout: float) -> bool:
        """Wait until the flag is set, but at most `timeout` seconds. Return True if the flag is set."""

    def is_set(self) -> bool:
        """Return True if the flag is set."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The size and duration of an upload."""

    sent_bytes: int
    """Plain size in bytes of the chunks that were sent."""
    wire_bytes: int
    """Size in bytes of the same chunks as they were sent, encoded or plain."""
    skipped_bytes: int
    """Bytes of the chunks that were not sent, because they existed already or are repeated in the shard."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Downloaded:
    """The size and duration of a download."""

    received_bytes: int
    seconds: float


class Rate:
    """A rate limiter without bursts. Callers get their delays in the order of their calls."""

    def __init__(self, bytes_per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._free = clock()
        self._lock = threading.Lock()

    def delay(self, size: int) -> float:
        """Return the seconds that the caller must wait before it transfers `size` bytes. Count these bytes
        as transferred.
        """
        if not self._rate:
            return 0.0
        with self._lock:
            now = self._clock()
            # Start at `now` after an idle time, so that unused capacity does not allow a burst.
            self._free = max(self._free, now) + size / self._rate
            return self._free - now


def upload(
    store: Store,
    manifest: Manifest,
    read: Callable[[int], digest.Buffer],
    *,
    stop: StopFlag,
    limits: TransferLimits = TransferLimits(),
    broken: Collection[str] = (),
) -> Uploaded:
    """Upload the chunks of a shard that the store does not have, then its manifest.

    `read`: returns the bytes of a chunk by its index; it is called from several threads. `broken`: digests
    of chunks that are known to be damaged in the store.

    Raises Stopped, StoreError, or Damaged if the bytes from `read` do not match the chunk. After an error,
    call it again: it continues where it stopped.
    """
    started = time.monotonic()
    work = _Transfer(stop, limits)
    first = {chunk.digest: index for index, chunk in reversed(list(enumerate(manifest.chunks)))}
    there = work.retried(lambda: store.reusable(first))
    old = [name for name in first if name in there and not there[name] and name not in broken]
    lost = work.retried(lambda: store.touch(old))
    missing = sorted(
        index for name, index in first.items() if name not in there or name in lost or name in broken
    )

    wire: list[int] = []

    def send(index: int) -> None:
        chunk = manifest.chunks[index]
        wire.append(work.retried(lambda: store.put_chunk(chunk, read(index), work.pace)))

    work.each(send, missing)
    work.retried(lambda: store.put_manifest(manifest))
    sent = sum(manifest.chunks[index].length for index in missing)
    return Uploaded(sent, sum(wire), manifest.size - sent, time.monotonic() - started)


def download(
    store: Store,
    manifest: Manifest,
    write: Callable[[int, bytes], None],
    *,
    stop: StopFlag,
    limits: TransferLimits = TransferLimits(),
    wanted: Collection[int] | None = None,
) -> Downloaded:
    """Download the chunks with the indexes in `wanted`, or all chunks if `wanted` is None. Each chunk is
    checked and then written, in any order and perhaps more than once.

    `write`: gets a chunk's index and bytes; it is called from several threads. Raises Stopped, StoreError,
    or Damaged if a chunk is missing or was damaged in two reads.
    """
    started = time.monotonic()
    work = _Transfer(stop, limits)
    places: dict[Chunk, list[int]] = {}
    for index in range(len(manifest.chunks)) if wanted is None else sorted(wanted):
        places.setdefault(manifest.chunks[index], []).append(index)

    def receive(chunk: Chunk) -> None:
        work.pace(chunk.length)
        data = _receive(work, store, chunk)
        for index in places[chunk]:
            write(index, data)

    work.each(receive, list(places))
    return Downloaded(sum(chunk.length for chunk in places), time.monotonic() - started)


def verify_chunks(
    store: Store,
    chunks: Iterable[Chunk],
    checked: Callable[[Chunk], None],
    *,
    stop: StopFlag,
    limits: TransferLimits = TransferLimits(),
) -> dict[str, str]:
    """Read and check each chunk. For each chunk that is missing or was damaged in two reads, return an
    error message, by the chunk's digest.

    `checked`: called with each chunk after its check, from several threads. Raises Stopped or StoreError.
    """
    work = _Transfer(stop, limits)
    found: dict[str, str] = {}

    def check(chunk: Chunk) -> None:
        try:
            _receive(work, store, chunk)
        except Damaged as error:
            found[chunk.digest] = str(error)
        checked(chunk)

    work.each(check, list(dict.fromkeys(chunks)))
    return found


class _Transfer:
    """The threads of one transfer. If one fails, all stop."""

    def __init__(self, stop: StopFlag, limits: TransferLimits) -> None:
        self._stop = stop
        self._threads = limits.threads
        self._rate = Rate(limits.bytes_per_second)
        self._retries = limits.retries
        self._left = limits.retries.budget
        self._lock = threading.Lock()
        self._failed = False

    def each(self, work: Callable[[T], None], items: Sequence[T]) -> None:
        """Call `work` for all items in parallel. The first error stops all threads and is raised here."""
        waiting = iter(items)
        count = min(self._threads, len(items))
        if count:
            with ThreadPoolExecutor(count, "shard") as pool:
                ends = [pool.submit(self._run, work, waiting) for _ in range(count)]
            errors = [error for end in ends if (error := end.exception())]
            # Other threads raise Stopped because of the first error, so sort Stopped last and raise the
            # cause.
            for error in sorted(errors, key=lambda one: isinstance(one, Stopped)):
                raise error

    def pace(self, size: int) -> None:
        """Wait until `size` bytes may be transferred within the rate limit."""
        self._pause(self._rate.delay(size))

    def retried(self, do: Callable[[], T]) -> T:
        """Return the result of `do`. Retry it after a retriable StoreError, within the limits."""
        backoff = Backoff(self._retries.first_seconds, self._retries.cap_seconds)
        for attempt in range(1, self._retries.attempts + 1):
            self._check_not_stopped()
            try:
                return do()
            except StoreError as error:
                if not error.retriable or attempt == self._retries.attempts or not self._spend():
                    raise
            self._pause(backoff.next())
        raise AssertionError("at least one attempt is made")

    def _run(self, work: Callable[[T], None], waiting: Iterator[T]) -> None:
        try:
            while True:
                with self._lock:
                    item = next(waiting)
                work(item)
        except StopIteration:
            return
        except BaseException:
            self._failed = True
            raise

    def _spend(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left >= 0

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self._check_not_stopped()
        while (left := until - time.monotonic()) > 0:
            self._stop.wait(min(left, _POLL_SECONDS))
            self._check_not_stopped()

    def _check_not_stopped(self) -> None:
        if self._failed or self._stop.is_set():
            raise Stopped


def _receive(work: _Transfer, store: Store, chunk: Chunk) -> bytes:
    """Return the bytes of a chunk. Raises StoreError, Stopped, or Damaged if the chunk is damaged in two
    reads.
    """
    try:
        return work.retried(lambda: store.get_chunk(chunk))
    except Damaged:
        # The bytes of the first read may have been damaged in transit, so read again.
        return work.retried(lambda: store.get_chunk(chunk))
