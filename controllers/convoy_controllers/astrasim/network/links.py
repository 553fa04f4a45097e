"""The congestion-aware network of one dimension: directed links that send one message at a time.

A link is busy for int(size / B). The message reaches the link's end int(latency + size / B) after it starts,
and then queues for the next link of its route.
"""

from __future__ import annotations

from collections import deque

from convoy_controllers.astrasim.clock import Clock
from convoy_controllers.astrasim.network.delays import bytes_per_ns
from convoy_controllers.astrasim.network.medium import Deliver, Key
from convoy_controllers.astrasim.parameters import Dimension, Network, Topology


class _Transit:
    """A message on its way. Its route is the list of the links ahead, the next one last."""

    __slots__ = ("_deliver", "_key", "_route", "size")

    def __init__(self, key: Key, route: list[_Link], deliver: Deliver) -> None:
        self.size = key[3]
        self._key = key
        self._route = route
        self._deliver = deliver

    def advance(self, _: None = None) -> None:
        """Queue for the next link, or arrive."""
        if self._route:
            self._route.pop().send(self)
        else:
            self._deliver(self._key)


class _Link:
    """A directed link."""

    __slots__ = ("_bandwidth", "_busy", "_clock", "_latency", "_times", "_waiting")

    def __init__(self, clock: Clock, dimension: Dimension, times: dict[int, tuple[int, int]]) -> None:
        self._clock = clock
        self._bandwidth = bytes_per_ns(dimension.bandwidth)
        self._latency = dimension.latency
        self._times = times
        """Time of a message's arrival and of the link's release, by size; shared by all links."""
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
    """Carries messages over links of one dimension."""

    def __init__(self, clock: Clock, network: Network, deliver: Deliver) -> None:
        self._clock = clock
        (self._dimension,) = network.dimensions
        self._deliver = deliver
        self._links: dict[tuple[int, int], _Link] = {}
        self._times: dict[int, tuple[int, int]] = {}

    def send(self, key: Key) -> None:
        """Send a message now."""
        _Transit(key, self._route(key[1], key[2]), self._deliver).advance()

    def _route(self, source: int, target: int) -> list[_Link]:
        """Return the links from one rank to another, the first one last."""
        ranks = self._dimension.ranks
        match self._dimension.topology:
            case Topology.FULLY_CONNECTED:
                return [self._link(source, target)]
            case Topology.SWITCH:
                # The switch has the number after the last rank.
                return [self._link(ranks, target), self._link(source, ranks)]
            case Topology.RING:
                distance = (target - source) % ranks
                # The shorter way; of two equal ones, clockwise.
                step, count = (-1, ranks - distance) if ranks - distance < distance else (1, distance)
                devices = [(source + step * hop) % ranks for hop in range(count, -1, -1)]
                return [self._link(devices[hop + 1], devices[hop]) for hop in range(count)]

    def _link(self, start: int, end: int) -> _Link:
        link = self._links.get((start, end))
        if link is None:
            link = self._links[start, end] = _Link(self._clock, self._dimension, self._times)
        return link
