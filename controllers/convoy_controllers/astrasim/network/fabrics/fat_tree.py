"""The k-ary fat tree: k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 core switches, k^3/4 ranks.

A message goes up only as far as it must. A hash of source and target chooses among the equal ways (ECMP).
"""

from __future__ import annotations

from collections.abc import Sequence

from convoy_controllers.astrasim.network.fabrics.fabric import Link
from convoy_controllers.astrasim.network.fabrics.spread import spread

_AGGREGATION, _CORE = 1, 2
"""Salts of the hash, so that the two choices of a way are independent."""


class FatTree:
    """A k-ary fat tree. `k` is even."""

    def __init__(self, k: int, bandwidth: float, latency: float) -> None:
        self.ranks = k**3 // 4
        self._half = k // 2
        self._bandwidth = bandwidth
        self._latency = latency
        self._edges = self.ranks
        self._aggregations = self._edges + k * self._half
        self._cores = self._aggregations + k * self._half

    def route(self, source: int, target: int) -> Sequence[Link]:
        """Return the route."""
        half = self._half
        edge, last_edge = source // half, target // half
        up, down = [source, self._edges + edge], [self._edges + last_edge, target]
        if edge == last_edge:
            return self._links([source, *down])
        way = spread(source, target, _AGGREGATION, half)
        pod, last_pod = edge // half, last_edge // half
        up.append(self._aggregations + pod * half + way)
        if pod == last_pod:
            return self._links([*up, *down])
        core = self._cores + way * half + spread(source, target, _CORE, half)
        return self._links([*up, core, self._aggregations + last_pod * half + way, *down])

    def name(self, node: int) -> str:
        """Return the name of a node."""
        for first, kind in (
            (self._cores, "core"),
            (self._aggregations, "aggregation"),
            (self._edges, "edge"),
        ):
            if node >= first:
                return f"{kind} {node - first}"
        return str(node)

    def _links(self, nodes: list[int]) -> Sequence[Link]:
        return [
            Link(nodes[hop], nodes[hop + 1], self._bandwidth, self._latency) for hop in range(len(nodes) - 1)
        ]
