"""Transfer shards to and from a store, chunk by chunk, with limits on rate, memory and retries."""

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
"""Seconds after which a waiting thread checks whether another one has failed."""


@dataclass(frozen=True, slots=True)
class Retries:
    """Limits on retries of operations that may succeed later."""

    attempts: int = 5
    """Attempts of one operation."""
    budget: int = 50
    """Retries of all operations together, so that a store that is down is not tried for every chunk."""
    first_seconds: float = 0.2
    cap_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """The limits of one shard's transfer."""

    threads: int = 8
    """Chunks that are transferred at once."""
    bytes_per_second: float = 0
    """Rate limit in bytes per second; 0 for none."""
    retries: Retries = Retries()


class StopFlag(Protocol):
    """A flag that cancels a transfer, for example a `threading.Event`."""

    def wait(self, timeout: float) -> bool:
        """Wait until the flag is set or the timeout in seconds ends. Return True if it is set."""

    def is_set(self) -> bool:
        """Return True if the flag is set."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The result of an upload."""

    sent_bytes: int
    """Bytes of the chunks that were sent, before encoding."""
    wire_bytes: int
    """Bytes that were sent for these chunks, some of them encoded."""
    skipped_bytes: int
    """Bytes of chunks that existed already or occur several times."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Downloaded:
    """The result of a download."""

    received_bytes: int
    seconds: float


class Rate:
    """A token bucket that starts empty. Callers wait for their own bytes in the order of their calls."""

    def __init__(self, bytes_per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._free = clock()
        self._lock = threading.Lock()

    def delay(self, size: int) -> float:
        """Return the seconds to wait before moving so many bytes, and count them as moved."""
        if not self._rate:
            return 0.0
        with self._lock:
            now = self._clock()
            # Unused capacity is not saved up.
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
    """Upload the chunks that do not exist yet, then the manifest. After an error, call it again: it
    continues.

    `read`: returns a chunk's bytes by its index; called from several threads. `broken`: digests of chunks
    that are known to be damaged in the store. Stopped, StoreError, or Damaged if `read` returns other bytes
    than the chunk's.
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
    """Download the chunks of these indices, or all. Each is checked and written at least once, in any
    order.

    `write`: receives a chunk by its index; called from several threads. Stopped, StoreError, or Damaged if
    a chunk is missing, or damaged on two reads.
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
    """Read and check each of these chunks once. Return the error, by digest, of each chunk that is missing
    or damaged on two reads.

    `checked`: called with each chunk after its check, from several threads. Stopped, StoreError.
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
    """The threads of one transfer, which stop together."""

    def __init__(self, stop: StopFlag, limits: TransferLimits) -> None:
        self._stop = stop
        self._threads = limits.threads
        self._rate = Rate(limits.bytes_per_second)
        self._retries = limits.retries
        self._left = limits.retries.budget
        self._lock = threading.Lock()
        self._failed = False

    def each(self, work: Callable[[T], None], items: Sequence[T]) -> None:
        """Call `work` for all items in parallel. The first error stops all threads and is raised."""
        waiting = iter(items)
        count = min(self._threads, len(items))
        if count:
            with ThreadPoolExecutor(count, "shard") as pool:
                ends = [pool.submit(self._run, work, waiting) for _ in range(count)]
            errors = [error for end in ends if (error := end.exception())]
            # Raise the cause first: the other threads stopped because of it.
            for error in sorted(errors, key=lambda one: isinstance(one, Stopped)):
                raise error

    def pace(self, size: int) -> None:
        """Wait until so many bytes may be moved."""
        self._pause(self._rate.delay(size))

    def retried(self, do: Callable[[], T]) -> T:
        """Return the result of `do`, with retries within the limits."""
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
    """Return the bytes of a chunk. Damaged if two reads are damaged. StoreError, Stopped."""
    try:
        return work.retried(lambda: store.get_chunk(chunk))
    except Damaged:
        # The first read may have been damaged in transit.
        return work.retried(lambda: store.get_chunk(chunk))
