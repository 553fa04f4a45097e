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
"""How soon a thread that waits hears that another one has failed."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often what may succeed later is tried again."""

    attempts: int = 5
    """Of one operation."""
    budget: int = 50
    """Retries of all operations together: a store that is down is not asked for each chunk."""
    first_seconds: float = 0.2
    cap_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """The limits of one shard's transfer."""

    threads: int = 8
    """Chunks under way at once."""
    bytes_per_second: float = 0
    """0 for no bound."""
    retries: Retries = Retries()


class StopFlag(Protocol):
    """As `threading.Event`."""

    def wait(self, timeout: float) -> bool:
        """Until it is set, or so many seconds; whether it is set."""

    def is_set(self) -> bool:
        """Whether it is set."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A shard that is in the store."""

    sent_bytes: int
    """Of the chunks that were sent."""
    wire_bytes: int
    """That these took, encoded as some were."""
    skipped_bytes: int
    """Of chunks that were there, or come twice."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A shard that was read from the store."""

    received_bytes: int
    seconds: float


class Rate:
    """A token bucket that starts empty; each waits for its own bytes, in the order of asking."""

    def __init__(self, bytes_per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._free = clock()
        self._lock = threading.Lock()

    def delay(self, size: int) -> float:
        """Seconds to wait before so many bytes are moved; they count as moved."""
        if not self._rate:
            return 0.0
        with self._lock:
            now = self._clock()
            # What was not used is not saved up.
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
    """Puts the chunks that are not there yet, and then the manifest. Again after any error: it goes on.

    `read`: a chunk's bytes by its index, from several threads. `broken`: digests of chunks whose bytes in the
    store are known to be damaged. Stopped, StoreError, or Damaged when what is read is not the chunk.
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
    """Gets the chunks of these indices, or all; each is checked at, and written once or more, in any order.

    `write`: takes a chunk by its index, from several threads. Stopped, StoreError, or Damaged when a chunk is
    not there or is damaged when read twice.
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
    """Reads these chunks, each once, and looks at them. By digest, what is wrong with those that are not
    there, or damaged when read twice.

    `checked`: takes a chunk that was checked at, from several threads. Stopped, StoreError.
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
    """Threads that stop together."""

    def __init__(self, stop: StopFlag, limits: TransferLimits) -> None:
        self._stop = stop
        self._threads = limits.threads
        self._rate = Rate(limits.bytes_per_second)
        self._retries = limits.retries
        self._left = limits.retries.budget
        self._lock = threading.Lock()
        self._failed = False

    def each(self, work: Callable[[T], None], items: Sequence[T]) -> None:
        """Works on all of them; the first error ends it and is raised."""
        waiting = iter(items)
        count = min(self._threads, len(items))
        if count:
            with ThreadPoolExecutor(count, "shard") as pool:
                ends = [pool.submit(self._run, work, waiting) for _ in range(count)]
            errors = [error for end in ends if (error := end.exception())]
            # Others only stopped because of it.
            for error in sorted(errors, key=lambda one: isinstance(one, Stopped)):
                raise error

    def pace(self, size: int) -> None:
        """Waits until so many bytes may be moved."""
        self._pause(self._rate.delay(size))

    def retried(self, do: Callable[[], T]) -> T:
        """Does it, as often as is allowed."""
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
    """The bytes of a chunk. Damaged when they are so twice, StoreError, Stopped."""
    try:
        return work.retried(lambda: store.get_chunk(chunk))
    except Damaged:
        # On its way, or where it lies.
        return work.retried(lambda: store.get_chunk(chunk))
