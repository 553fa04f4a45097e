"""The congestion-aware network: directed links that send one message at a time.

A link is busy for int(size / B). The message reaches the link's end int(latency + size / B) after it starts,
and then queues for the next link of its route.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from convoy_controllers.astrasim.clock import Clock
from convoy_controllers.astrasim.network.delays import bytes_per_ns
from convoy_controllers.astrasim.network.fabrics.fabric import Fabric, Link
from convoy_controllers.astrasim.network.medium import Deliver, Key
from convoy_controllers.astrasim.network.route_table import RouteTable
from convoy_controllers.astrasim.result import LinkUse

Times = dict[int, tuple[int, int]]
"""Time of a message's arrival and of the link's release, by size."""


class _Transit:
    """A message on its way."""

    __slots__ = ("_deliver", "_hop", "_key", "_route", "size")

    def __init__(self, key: Key, route: tuple[_Link, ...], deliver: Deliver) -> None:
        self.size = key[3]
        self._key = key
        self._route = route
        self._hop = 0
        self._deliver = deliver

    def advance(self, _: None = None) -> None:
        """Queue for the next link, or arrive."""
        hop = self._hop
        if hop < len(self._route):
            self._hop = hop + 1
            self._route[hop].send(self)
        else:
            self._deliver(self._key)


class _Link:
    """A directed link."""

    __slots__ = ("_bandwidth", "_busy", "_clock", "_latency", "_times", "_waiting", "bytes", "link")

    def __init__(self, clock: Clock, link: Link, times: Times) -> None:
        self.link = link
        self.bytes = 0
        self._clock = clock
        self._bandwidth = bytes_per_ns(link.bandwidth)
        self._latency = link.latency
        self._times = times
        """Shared by all links of the same bandwidth and latency."""
        self._busy = False
        self._waiting: deque[_Transit] = deque()

    def send(self, transit: _Transit) -> None:
        """Send a message as soon as the link is free."""
        if self._busy:
            self._waiting.append(transit)
            return
        self._busy = True
        self._start(transit)

    def _start(self, transit: _Transit) -> None:
        size = transit.size
        self.bytes += size
        times = self._times.get(size)
        if times is None:
            serialization = size / self._bandwidth
            times = self._times[size] = int(self._latency + serialization), int(serialization)
        arrival, release = times
        clock = self._clock
        now = clock.now
        # The order matters where both happen at the same time.
        clock.at(now + arrival, transit.advance, None)
        clock.at(now + release, self._free, None)

    def _free(self, _: None) -> None:
        if self._waiting:
            self._start(self._waiting.popleft())
        else:
            self._busy = False


class AwareMedium:
    """Carries messages over links that each send one message at a time."""

    def __init__(self, clock: Clock, fabric: Fabric, deliver: Deliver) -> None:
        self._clock = clock
        self._deliver = deliver
        self._table = RouteTable(fabric, self._link)
        self._times: dict[tuple[float, float], Times] = {}

    def send(self, key: Key) -> None:
        """Send a message now."""
        _Transit(key, self._table.route(key[1], key[2]), self._deliver).advance()

    def uses(self) -> Iterator[LinkUse]:
        """Yield the use of each used link so far."""
        return self._table.uses(self._clock.now)

    def _link(self, link: Link) -> _Link:
        return _Link(self._clock, link, self._times.setdefault((link.bandwidth, link.latency), {}))
