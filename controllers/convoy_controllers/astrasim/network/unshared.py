"""The congestion-unaware network on the links of a fabric.

T = int(sum of the route's latencies + size / B), with the lowest bandwidth B on the route.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from convoy_controllers.astrasim.clock import Clock
from convoy_controllers.astrasim.network.delays import bytes_per_ns
from convoy_controllers.astrasim.network.fabrics.fabric import Fabric, Link
from convoy_controllers.astrasim.network.medium import Deliver, Key
from convoy_controllers.astrasim.network.route_table import RouteTable
from convoy_controllers.astrasim.result import LinkUse


class _Link:
    """A directed link."""

    __slots__ = ("bytes", "link")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.bytes = 0


class UnsharedMedium:
    """Carries messages that never share a link."""

    def __init__(self, clock: Clock, fabric: Fabric, deliver: Deliver) -> None:
        self._clock = clock
        self._table = RouteTable(fabric, _Link)
        self._deliver = deliver

    def send(self, key: Key) -> None:
        """Send a message now."""
        _, source, target, size = key
        route = self._table.route(source, target)
        for one in route:
            one.bytes += size
        latency = math.fsum(one.link.latency for one in route)
        bandwidth = bytes_per_ns(min(one.link.bandwidth for one in route))
        self._clock.at(self._clock.now + int(latency + size / bandwidth), self._deliver, key)

    def uses(self) -> Iterator[LinkUse]:
        """Yield the use of each used link so far."""
        return self._table.uses(self._clock.now)
