"""An arbitrary graph of directed links. Messages take given routes, or shortest paths.

The shortest path has the fewest hops. Among equal ways, a node's first link wins, or a hash of source and
target chooses (ECMP).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache

from convoy_controllers.astrasim.network.fabrics.fabric import Link
from convoy_controllers.astrasim.network.fabrics.spread import spread

KEPT_DISTANCES = 20_000_000
"""Distances between nodes that a graph keeps, about 80 MB. It computes others again."""


class Unreachable(ValueError):
    """Raised for a graph without a way from one rank to another."""


class LinkGraph:
    """A graph of links. Its nodes are the ranks, then the switches."""

    def __init__(
        self,
        ranks: int,
        switches: Sequence[str],
        links: Sequence[Link],
        routes: Mapping[tuple[int, int], Sequence[Link]] | None = None,
        hashes: bool = False,
        names: Sequence[str] = (),
    ) -> None:
        """`routes`: given routes by source and target. `hashes`: choose among equal ways by a hash.
        `names`: names of the ranks, if they have others than their numbers. Raises Unreachable if two ranks
        are not connected.
        """
        self.ranks = ranks
        self._names: tuple[str, ...] = (*(names or map(str, range(ranks))), *switches)
        self._routes = dict(routes or {})
        self._hashes = hashes
        nodes = len(self._names)
        self._out: list[list[Link]] = [[] for _ in range(nodes)]
        self._into: list[list[int]] = [[] for _ in range(nodes)]
        for link in links:
            self._out[link.start].append(link)
            self._into[link.end].append(link.start)
        self._distances_to = lru_cache(max(1, KEPT_DISTANCES // nodes))(self._distances)
        self._check()

    def route(self, source: int, target: int) -> Sequence[Link]:
        """Return the route."""
        given = self._routes.get((source, target))
        if given is not None:
            return given
        distances = self._distances_to(target)
        found: list[Link] = []
        node = source
        while node != target:
            ways = [link for link in self._out[node] if distances[link.end] == distances[node] - 1]
            way = spread(source, target, node, len(ways)) if self._hashes else 0
            found.append(ways[way])
            node = ways[way].end
        return found

    def name(self, node: int) -> str:
        """Return the name of a node."""
        return self._names[node]

    def _distances(self, target: int) -> array[int]:
        """Return the number of hops from each node to the target; -1 without a way."""
        return _hops(self._into, target)

    def _check(self) -> None:
        """Raise Unreachable unless every rank reaches every other one."""
        there = _hops([[link.end for link in links] for links in self._out], 0)
        back = self._distances_to(0)
        for rank in range(self.ranks):
            for distances, source, target in ((there, 0, rank), (back, rank, 0)):
                if distances[rank] < 0:
                    raise Unreachable(
                        f"there is no way from {self._described(source)} to {self._described(target)}"
                    )

    def _described(self, rank: int) -> str:
        name = self._names[rank]
        return f"rank {rank}" if name == str(rank) else f"rank {rank} ({name})"


def _hops(neighbours: Sequence[Sequence[int]], start: int) -> array[int]:
    """Return the number of hops from a node to each one; -1 without a way."""
    distances = array("i", [-1]) * len(neighbours)
    distances[start] = 0
    reached = [start]
    for node in reached:
        further = distances[node] + 1
        for neighbour in neighbours[node]:
            if distances[neighbour] < 0:
                distances[neighbour] = further
                reached.append(neighbour)
    return distances
