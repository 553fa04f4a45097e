"""The choice whether to encode chunks on their way to a store or to another node: only if encoding takes
less time than it saves.

On a link that is faster than the codec, chunks are sent plain. Every 64th is encoded to measure again.
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
"""Plain chunks after which one is encoded to measure the codec again."""
HALF_LIFE = 64 * 2**20
"""Bytes after which a measurement counts half. It spans several chunks, so one slow response decides
nothing.
"""

MAX_LINKS = 256
"""Maximum nodes whose measurements are kept."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A moving average of a cost per byte, weighted by bytes. A small chunk mostly measures the round trip
    and so counts little.
    """

    total: float = 0.0
    size: float = 0.0
    """Weighted bytes: older ones count less."""

    @property
    def value(self) -> float | None:
        """Cost per byte; None before the first measurement."""
        return self.total / self.size if self.size else None

    def add(self, total: float, size: int) -> Mean:
        """Return the average with one more measurement."""
        left = math.exp2(-size / HALF_LIFE)
        return Mean(self.total * left + total, self.size * left + size)


@dataclass(frozen=True, slots=True)
class Costs:
    """The measurements of one link."""

    send: Mean = Mean()
    """Seconds per byte on the link, as one of several concurrent senders sees it."""
    encode: Mean = Mean()
    """Encoding seconds per byte of a chunk."""
    saved: Mean = Mean()
    """Bytes saved per byte of an encoded chunk."""
    plain: int = 0
    """Chunks sent plain since the last encoded one."""


def encoding_pays(costs: Costs, ahead: float = 0.0) -> bool:
    """Return True if the next chunk should be encoded: encoding takes less time than it saves, or must be
    measured.

    `ahead`: chunks in the encoders' queue before it.
    """
    send, encode, saved = costs.send.value, costs.encode.value, costs.saved.value
    if encode is None or saved is None or costs.plain >= PROBE_EVERY:
        return True
    return send is not None and encode * (1 + ahead) < saved * send


class Encoders:
    """The threads that encode for all links. They are few, since training runs beside them."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "encode")
        self._waiting = 0
        self._lock = threading.Lock()

    @property
    def ahead(self) -> float:
        """Number of chunks that a new chunk would wait for."""
        return max(0.0, (self._waiting + 1) / self._threads - 1)

    def submit(self, data: Buffer) -> Future[tuple[bytes | None, float]]:
        """Encode a chunk in a thread. Return the result of `planes.encode` and the seconds that it took."""
        found = self._pool.submit(_encode, data)
        with self._lock:
            self._waiting += 1
        # The callback runs also if nobody waits for the result any more.
        found.add_done_callback(self._done)
        return found

    def _done(self, _: Future[tuple[bytes | None, float]]) -> None:
        with self._lock:
            self._waiting -= 1


class Link:
    """The link to one store or one node. Thread-safe."""

    def __init__(self, encoders: Encoders, count: Callable[[int, int], None]) -> None:
        """`count`: called with the length of each chunk and the bytes that were sent for it."""
        self._encoders = encoders
        self._count = count
        self._costs = Costs()
        self._lock = threading.Lock()

    @property
    def costs(self) -> Costs:
        """The measurements so far."""
        return self._costs

    def pack(self, data: B) -> B | bytes:
        """Return a chunk as it should be sent: encoded or plain."""
        return self._record_encoding(data, *self._encoders.submit(data).result()) if self._wanted() else data

    async def pack_async(self, data: B) -> B | bytes:
        """Do the same as `pack` on the event loop."""
        if not self._wanted():
            return data
        return self._record_encoding(data, *await asyncio.wrap_future(self._encoders.submit(data)))

    def record_sent(self, length: int, size: int, seconds: float) -> None:
        """Record that a chunk of `length` bytes was sent as `size` bytes."""
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
        """`count`: see `Link`."""
        self._encoders = encoders
        self._count = count
        self._known: dict[str, Link] = {}

    def to(self, node: str) -> Link:
        """Return the link to a node. Beyond MAX_LINKS the least recently used one is dropped."""
        link = self._known.pop(node, None) or Link(self._encoders, self._count)
        self._known[node] = link
        while len(self._known) > MAX_LINKS:
            del self._known[next(iter(self._known))]
        return link


def _encode(data: Buffer) -> tuple[bytes | None, float]:
    started = time.monotonic()
    word = planes.best_word(data)
    return planes.encode(data, word) if word else None, time.monotonic() - started
