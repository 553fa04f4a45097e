"""The congestion-unaware network: a message's time follows from its size and its number of hops alone.

T = int(hops * latency + size / B), with B = bandwidth * 2^30 / 10^9 bytes per ns.
"""

from __future__ import annotations

from collections.abc import Iterator

from convoy_controllers.astrasim.clock import Clock
from convoy_controllers.astrasim.network.medium import Deliver, Key
from convoy_controllers.astrasim.parameters import Dimension, Network, Topology
from convoy_controllers.astrasim.result import LinkUse


def bytes_per_ns(bandwidth: float) -> float:
    """Return a bandwidth of GB/s, with GB = 2^30 bytes, in bytes per ns."""
    return bandwidth * (1 << 30) / 1_000_000_000


def hops(dimension: Dimension, distance: int) -> int:
    """Return the hops between two ranks. `distance` is the clockwise distance, at least 1."""
    match dimension.topology:
        case Topology.FULLY_CONNECTED:
            return 1
        case Topology.SWITCH:
            return 2
        case Topology.RING:
            return min(distance, dimension.ranks - distance)


class UnawareMedium:
    """Carries messages without congestion. A message uses the first dimension in which the ranks differ."""

    def __init__(self, clock: Clock, network: Network, deliver: Deliver) -> None:
        self._clock = clock
        self._dimensions = network.dimensions
        self._only = network.dimensions[0].ranks if len(network.dimensions) == 1 else 0
        self._deliver = deliver
        self._delays: dict[tuple[int, int, int], int] = {}
        """Delay by dimension, clockwise distance and size."""

    def send(self, key: Key) -> None:
        """Send a message now."""
        _, source, target, size = key
        dimension, distance = (
            (0, (target - source) % self._only) if self._only else self._path(source, target)
        )
        facts = (dimension, distance, size)
        delay = self._delays.get(facts)
        if delay is None:
            delay = self._delays[facts] = self._delay(*facts)
        clock = self._clock
        clock.at(clock.now + delay, self._deliver, key)

    def uses(self) -> Iterator[LinkUse]:
        """Return an empty iterator, because the dimensions have no links."""
        return iter(())

    def _path(self, source: int, target: int) -> tuple[int, int]:
        """Return the dimension that a message uses, and the clockwise distance within it."""
        for number, dimension in enumerate(self._dimensions):
            distance = (target - source) % dimension.ranks
            if distance:
                return number, distance
            source //= dimension.ranks
            target //= dimension.ranks
        raise AssertionError("a message to the own rank")

    def _delay(self, dimension: int, distance: int, size: int) -> int:
        used = self._dimensions[dimension]
        return int(hops(used, distance) * used.latency + size / bytes_per_ns(used.bandwidth))
