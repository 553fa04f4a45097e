"""Whether chunks are encoded on their way to a store or to another node: where that takes less time than it
saves.

A link that is faster than the codec gets chunks as they are, and one now and then encoded, to see whether
that is still so.
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
"""Chunks that go as they are, until one is encoded to see how long that takes by now."""
HALF_LIFE = 64 * 2**20
"""Bytes after which a measurement counts half: some chunks, so that one slow answer decides nothing."""

MAX_LINKS = 256
"""Nodes of which it is known how long it takes to send there."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A moving average of something per byte, by bytes: a small chunk, whose time is that of the answer, says
    little of a large one's.
    """

    total: float = 0.0
    size: float = 0.0
    """Bytes, of which earlier ones count less."""

    @property
    def value(self) -> float | None:
        """Per byte; None before the first."""
        return self.total / self.size if self.size else None

    def add(self, total: float, size: int) -> Mean:
        """The same with one more."""
        left = math.exp2(-size / HALF_LIFE)
        return Mean(self.total * left + total, self.size * left + size)


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured of a link."""

    send: Mean = Mean()
    """Seconds per byte that goes over it, as one of those who send at once sees it."""
    encode: Mean = Mean()
    """Seconds per byte of a chunk."""
    saved: Mean = Mean()
    """Bytes less that go, per byte of a chunk that was encoded."""
    plain: int = 0
    """Chunks that were sent as they are since one was encoded."""


def encoding_pays(costs: Costs, ahead: float = 0.0) -> bool:
    """Whether the next chunk is to be encoded: it takes less time than it saves, or that is to be found out.

    `ahead`: chunks for which it waits before its turn.
    """
    send, encode, saved = costs.send.value, costs.encode.value, costs.saved.value
    if encode is None or saved is None or costs.plain >= PROBE_EVERY:
        return True
    return send is not None and encode * (1 + ahead) < saved * send


class Encoders:
    """The few threads that encode, for all links together: training goes on beside them."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "encode")
        self._waiting = 0
        self._lock = threading.Lock()

    @property
    def ahead(self) -> float:
        """Chunks for which one that comes now would wait."""
        return max(0.0, (self._waiting + 1) / self._threads - 1)

    def submit(self, data: Buffer) -> Future[tuple[bytes | None, float]]:
        """What `planes.encode` makes of a chunk, and the seconds for which it worked."""
        found = self._pool.submit(_encode, data)
        with self._lock:
            self._waiting += 1
        # Also when nobody waits for it any more.
        found.add_done_callback(self._done)
        return found

    def _done(self, _: Future[tuple[bytes | None, float]]) -> None:
        with self._lock:
            self._waiting -= 1


class Link:
    """The way to one store, or to one node. For several threads at once."""

    def __init__(self, encoders: Encoders, count: Callable[[int, int], None]) -> None:
        """`count`: hears (bytes of a chunk, bytes that went for it)."""
        self._encoders = encoders
        self._count = count
        self._costs = Costs()
        self._lock = threading.Lock()

    @property
    def costs(self) -> Costs:
        """What was measured."""
        return self._costs

    def pack(self, data: B) -> B | bytes:
        """A chunk as it is to be sent: encoded, or as it is."""
        return self._record_encoding(data, *self._encoders.submit(data).result()) if self._wanted() else data

    async def pack_async(self, data: B) -> B | bytes:
        """As `pack`."""
        if not self._wanted():
            return data
        return self._record_encoding(data, *await asyncio.wrap_future(self._encoders.submit(data)))

    def sent(self, length: int, size: int, seconds: float) -> None:
        """A chunk of this length went over the link as so many bytes."""
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
    """The ways to other nodes. Of the event loop."""

    def __init__(self, encoders: Encoders, count: Callable[[int, int], None]) -> None:
        """`count`: as of `Link`."""
        self._encoders = encoders
        self._count = count
        self._known: dict[str, Link] = {}

    def to(self, node: str) -> Link:
        """The link to a node; what was measured of one that was not used for long is forgotten."""
        link = self._known.pop(node, None) or Link(self._encoders, self._count)
        self._known[node] = link
        while len(self._known) > MAX_LINKS:
            del self._known[next(iter(self._known))]
        return link


def _encode(data: Buffer) -> tuple[bytes | None, float]:
    started = time.monotonic()
    word = planes.best_word(data)
    return planes.encode(data, word) if word else None, time.monotonic() - started
