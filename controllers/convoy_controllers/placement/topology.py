"""The topology of nodes: their domains, and the hops between them.

The topology keys are node labels, the nearest first: rack, then zone. The domain path of a node has one name
for each key. Two nodes are in the same domain of a key only if their names for this key and for all farther
keys are equal, because racks of two zones may have the same name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Path = tuple[str, ...]
"""Names of a node's domains, one for each topology key, the nearest first; empty for a missing label."""

UNKNOWN = "-"
"""Shown name of the domain of nodes without the label."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The topology keys, and the domain path of each node."""

    keys: tuple[str, ...]
    paths: Mapping[str, Path]

    def path(self, node: str) -> Path:
        """Return the node's domain path. A node that is not known has no domains."""
        return self.paths.get(node) or ("",) * len(self.keys)

    def domain(self, node: str, level: int) -> Path:
        """Return the identity of the node's domain of the key with index `level`: the names of this key and
        of all farther keys.
        """
        return self.path(node)[level:]

    def hops(self, one: str, other: str) -> int:
        """Return the hops between two nodes: 0 on one node, 1 in one domain of the nearest key, one more for
        each further key whose domains differ. A missing label counts as a domain of its own.
        """
        if one == other:
            return 0
        for level in range(len(self.keys)):
            ours, theirs = self.domain(one, level), self.domain(other, level)
            if ours == theirs and all(ours):
                return level + 1
        return len(self.keys) + 1

    def ring_hops(self, nodes: Sequence[str]) -> int:
        """Return the sum of the hops between neighbours in a ring of nodes. The last is the neighbour of the
        first.
        """
        return sum(self.hops(one, other) for one, other in zip(nodes, (*nodes[1:], *nodes[:1]), strict=True))


def shown(domain: Path) -> str:
    """Return the name of a domain for people, the farthest key first, such as `zone-1/rack-2`; empty if it
    has none.
    """
    return "/".join(reversed([name for name in domain if name]))


def topology(keys: Sequence[str], labels: Mapping[str, Mapping[str, str]]) -> Topology:
    """Return the topology of nodes with these labels, by name of the node."""
    return Topology(
        tuple(keys), {node: tuple(found.get(key, "") for key in keys) for node, found in labels.items()}
    )


def along(nodes: Sequence[str], found: Topology) -> list[int]:
    """Return the indices of `nodes` in an order along the topology: farthest domains first, then nearer
    ones, then nodes. Equal places keep their order.

    The ring through this order leaves each domain once, which no order can improve if the domains nest.
    Larger domains come first, so that the order does not depend on names alone.
    """
    sizes = [Counter(found.domain(node, level) for node in nodes) for level in range(len(found.keys))]

    def place(index: int) -> tuple[object, ...]:
        node = nodes[index]
        parts: list[object] = []
        for level in reversed(range(len(found.keys))):
            domain = found.domain(node, level)
            parts += [-sizes[level][domain], domain]
        return (*parts, node, index)

    return sorted(range(len(nodes)), key=place)
