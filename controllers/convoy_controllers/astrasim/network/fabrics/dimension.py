"""The fabric of one dimension: a ring, all pairs of ranks, or a switch."""

from __future__ import annotations

from collections.abc import Sequence

from convoy_controllers.astrasim.network.fabrics.fabric import Link
from convoy_controllers.astrasim.parameters import Dimension, Topology


class DimensionFabric:
    """The links of one dimension."""

    def __init__(self, dimension: Dimension) -> None:
        self.ranks = dimension.ranks
        self._dimension = dimension

    def route(self, source: int, target: int) -> Sequence[Link]:
        """Return the route. A ring takes the shorter way; of two equal ones, clockwise."""
        ranks = self.ranks
        match self._dimension.topology:
            case Topology.FULLY_CONNECTED:
                nodes = [source, target]
            case Topology.SWITCH:
                nodes = [source, ranks, target]
            case Topology.RING:
                distance = (target - source) % ranks
                step, count = (-1, ranks - distance) if ranks - distance < distance else (1, distance)
                nodes = [(source + step * hop) % ranks for hop in range(count + 1)]
        bandwidth, latency = self._dimension.bandwidth, self._dimension.latency
        return [Link(nodes[hop], nodes[hop + 1], bandwidth, latency) for hop in range(len(nodes) - 1)]

    def name(self, node: int) -> str:
        """Return the name of a node."""
        return str(node) if node < self.ranks else "switch"
