"""The choice whether to encode chunks before they are sent to a store or to another node. Chunks are
encoded only if encoding takes less time than it saves in sending.

If the link is faster than the encoder, chunks are sent plain. After every 64 plain chunks one chunk is
encoded, to measure the encoder's speed again.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from convoy_agents.tiercheck import planes
from convoy_agents.tiercheck.digest import Buffer

B = TypeVar("B", bound=Buffer)

PROBE_EVERY = 64
"""Number of plain chunks after which one chunk is encoded to measure the codec again."""
HALF_LIFE = 64 * 2**20
"""Number of measured bytes after which an earlier measurement has half its weight. It is many times the
size of a chunk, so that one slow response changes the average only a little.
"""

MAX_LINKS = 256
"""Maximum number of nodes whose measurements are kept."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A moving average of a cost per byte. Each measurement is weighted by its number of bytes. A small
    chunk therefore has little weight, because most of its time is the round trip.
    """

    total: float = 0.0
    size: float = 0.0
    """Sum of the measured bytes, where older measurements have less weight."""

    @property
    def value(self) -> float | None:
        """The average cost per byte; None before the first measurement."""
        return self.total / self.size if self.size else None

    def add(self, total: float, size: int) -> Mean:
        """Return the average with one more measurement: `total` cost for `size` bytes."""
        left = math.exp2(-size / HALF_LIFE)
        return Mean(self.total * left + total, self.size * left + size)


@dataclass(frozen=True, slots=True)
class Costs:
    """The measured costs of sending and encoding on one link."""

    send: Mean = Mean()
    """Seconds that a sender needs per sent byte. Several senders use the link at once, so this is longer
    than the link alone would need.
    """
    encode: Mean = Mean()
    """Seconds of encoding per byte of a plain chunk."""
    saved: Mean = Mean()
    """Bytes saved by encoding per byte of a plain chunk."""
    plain: int = 0
    """Number of chunks sent plain since the last encoded chunk."""


def encoding_pays(costs: Costs, ahead: float = 0.0) -> bool:
    """Return True if the next chunk should be encoded: if encoding takes less time than it saves in
    sending, or if the speed of the codec must be measured.

    `ahead`: number of other chunks that an encoder thread must encode before this one.
    """
    send, encode, saved = costs.send.value, costs.encode.value, costs.saved.value
    if encode is None or saved is None or costs.plain >= PROBE_EVERY:
        return True
    return send is not None and encode * (1 + ahead) < saved * send


class Encoders:
    """The threads that encode chunks for all links. They are few, since the training uses the same cores."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "encode")
        self._waiting = 0
        self._lock = threading.Lock()

    @property
    def ahead(self) -> float:
        """Average number of chunks that each thread must encode before it can encode a new chunk."""
        return max(0.0, (self._waiting + 1) / self._threads - 1)

    def submit(self, data: Buffer) -> Future[tuple[bytes | None, float]]:
        """Encode a chunk in a thread. The future's result is a pair: the result of `planes.encode`, and the
        seconds of encoding.
        """
        found = self._pool.submit(_encode, data)
        with self._lock:
            self._waiting += 1
        # The callback runs even if the caller was cancelled. So every submitted chunk is subtracted from
        # `_waiting` again.
        found.add_done_callback(self._done)
        return found

    def _done(self, _: Future[tuple[bytes | None, float]]) -> None:
        with self._lock:
            self._waiting -= 1


class Link:
    """The link to one store or one node: decides whether to encode each chunk. Thread-safe."""

    def __init__(self, encoders: Encoders, count: Callable[[int, int], None]) -> None:
        """`count`: called for each chunk with its length and the number of bytes that were sent."""
        self._encoders = encoders
        self._count = count
        self._costs = Costs()
        self._lock = threading.Lock()

    @property
    def costs(self) -> Costs:
        """The measured costs so far."""
        return self._costs

    def pack(self, data: B) -> B | bytes:
        """Return the chunk in the form in which it should be sent: encoded or plain."""
        return self._record_encoding(data, *self._encoders.submit(data).result()) if self._wanted() else data

    async def pack_async(self, data: B) -> B | bytes:
        """Return the same as `pack`, without blocking the event loop."""
        if not self._wanted():
            return data
        return self._record_encoding(data, *await asyncio.wrap_future(self._encoders.submit(data)))

    def record_sent(self, length: int, size: int, seconds: float) -> None:
        """Record that a chunk of `length` bytes was sent as `size` bytes in `seconds`."""
        self._count(length, size)
        with self._lock:
            self._costs = replace(self._costs, send=self._costs.send.add(seconds, size))

    def _wanted(self) -> bool:
        with self._lock:
            wanted = encoding_pays(self._costs, self._encoders.ahead)
            self._costs = replace(self._costs, plain=0 if wanted else self._costs.plain + 1)
            return wanted

    def _record_encoding(self, data: B, found: bytes | None, seconds: float) -> B | bytes:
        packed = data if found is None else found
        with self._lock:
            costs = self._costs
            encode = costs.encode.add(seconds, len(data))
            saved = costs.saved.add(len(data) - len(packed), len(data))
            self._costs = replace(costs, encode=encode, saved=saved)
        return packed


class Links:
    """The links to other nodes. Not thread-safe: used by the event loop alone."""

    def __init__(self, encoders: Encoders, count: Callable[[int, int], None]) -> None:
        """`count`: as in `Link.__init__`."""
        self._encoders = encoders
        self._count = count
        self._known: dict[str, Link] = {}

    def to(self, node: str) -> Link:
        """Return the link to a node. If there are then more than MAX_LINKS links, drop the least recently
        used.
        """
        link = self._known.pop(node, None) or Link(self._encoders, self._count)
        self._known[node] = link
        while len(self._known) > MAX_LINKS:
            del self._known[next(iter(self._known))]
        return link


def _encode(data: Buffer) -> tuple[bytes | None, float]:
    started = time.monotonic()
    word = planes.best_word(data)
    return planes.encode(data, word) if word else None, time.monotonic() - started
