"""Meshes and tori with dimension-order routing: a message first moves along dimension 0 (XY routing)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from convoy_controllers.astrasim.network.fabrics.fabric import Link


class Grid:
    """A mesh or a torus of ranks. Dimension 0 is the fastest in the number of a rank."""

    def __init__(
        self, sizes: Sequence[int], bandwidths: Sequence[float], latencies: Sequence[float], wraps: bool
    ) -> None:
        self.ranks = math.prod(sizes)
        self._dimensions = tuple(zip(sizes, bandwidths, latencies, strict=True))
        self._wraps = wraps
        """True for a torus: links connect the ends of each row."""

    def route(self, source: int, target: int) -> Sequence[Link]:
        """Return the route. A torus takes the shorter way in each dimension; of two equal ones, upwards."""
        found: list[Link] = []
        node, stride = source, 1
        for size, bandwidth, latency in self._dimensions:
            place, goal = node // stride % size, target // stride % size
            step, count = self._steps(place, goal, size)
            for _ in range(count):
                place = (place + step) % size
                reached = node + (place - node // stride % size) * stride
                found.append(Link(node, reached, bandwidth, latency))
                node = reached
            stride *= size
        return found

    def name(self, node: int) -> str:
        """Return the name of a node."""
        return str(node)

    def _steps(self, place: int, goal: int, size: int) -> tuple[int, int]:
        """Return the direction and the number of hops within one dimension."""
        if self._wraps:
            distance = (goal - place) % size
            return (-1, size - distance) if size - distance < distance else (1, distance)
        return (1, goal - place) if goal >= place else (-1, place - goal)
