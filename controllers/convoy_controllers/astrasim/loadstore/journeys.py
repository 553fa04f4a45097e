"""The way of a line or flag through the fabric, as the hops that the event loop plays."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from convoy_controllers.astrasim.loadstore.fabric import route
from convoy_controllers.astrasim.loadstore.parameters import Setup


class Link:
    """A directed link."""

    __slots__ = ("bytes", "free")

    def __init__(self) -> None:
        self.free = 0
        """Tick at which the link has sent all that it accepted."""
        self.bytes = 0


class Hop(NamedTuple):
    """A link on the way of a message."""

    link: Link
    data: bool
    """True if the message has data here; False for a request, an acknowledgement or a flag."""
    after: int
    """Ticks from the begin of the transmission until the message is at the next hop, or has arrived."""
    whole: bool
    """True if `after` counts from the end of the transmission: the message must have arrived whole."""


class Journey(NamedTuple):
    """The way of a message."""

    delay: int
    """Ticks before the first hop."""
    hops: tuple[Hop, ...]


class Delays(NamedTuple):
    """The latencies, in ticks, of a message from one GPU to another."""

    cache: int
    memory: int
    """Memory of the target."""
    link: int


class Router:
    """Makes the journeys of one GPU."""

    def __init__(self, setup: Setup, gpu: int, link: Callable[[int, int], Link]) -> None:
        self._setup = setup
        self._gpu = gpu
        self._link = link
        """(GPU, number) -> the link."""
        self._light = setup.links.header == 0 and setup.links.control_first
        """True if messages without data take no bandwidth and never wait. They are delays only."""

    def put(self, peer: int, delays: Delays) -> Journey:
        """Return the way of a store: data to the peer, acknowledgement back."""
        back = self._hops(self._gpu + peer, -peer, False, delays.link, delays.cache)
        if self._light:
            memory = delays.memory + self._flight(-peer, delays)
            return Journey(
                delays.cache, self._hops(self._gpu, peer, True, delays.link, memory + delays.cache)
            )
        return Journey(delays.cache, self._hops(self._gpu, peer, True, delays.link, delays.memory) + back)

    def get(self, peer: int, delays: Delays) -> Journey:
        """Return the way of a load: request to the peer, data back."""
        data = self._hops(self._gpu + peer, -peer, True, delays.link, delays.cache)
        flag = self.flag(peer, delays)
        return Journey(flag.delay, flag.hops + data)

    def flag(self, peer: int, delays: Delays) -> Journey:
        """Return the way of a message without data to the peer's memory."""
        if self._light:
            return Journey(delays.cache + self._flight(peer, delays) + delays.memory, ())
        return Journey(delays.cache, self._hops(self._gpu, peer, False, delays.link, delays.memory))

    def _flight(self, peer: int, delays: Delays) -> int:
        links = self._setup.links
        return delays.link * len(route(links.fabric, links.gpus, peer % links.gpus))

    def _hops(self, start: int, peer: int, data: bool, latency: int, then: int) -> tuple[Hop, ...]:
        """Return the hops from `start` to `peer`; `then` ticks pass after the last one."""
        gpus = self._setup.links.gpus
        ways = route(self._setup.links.fabric, gpus, peer % gpus)
        last = len(ways) - 1
        return tuple(
            Hop(
                self._link((start + offset) % gpus, number),
                data,
                latency + (then if place == last else 0),
                place == last,
            )
            for place, (offset, number) in enumerate(ways)
        )
