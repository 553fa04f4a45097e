"""The racks of the fake cluster, the load on them, and an exact oracle. This module does no I/O.

It shares no code with the operator, so that it can judge the operator's choices.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

RACK, ZONE = "rack", "zone"
KEYS = (RACK, ZONE)
"""Topology keys of the jobs, the nearest first."""
NODES_PER_RACK, RACKS_PER_ZONE = 10, 5
CPUS = 8
"""Processors of each node."""
LOAD = 0.7
"""Share of the processors that pods of other owners request."""
_TENANT_CPUS = (1, 2, 3, 4)
_MIN_PODS, _MAX_PODS = 2, 16
_POD_CPUS = (1, 1, 2)
"""Processors of a pod; each is drawn as often as it is listed. A job takes up to four nodes' worth."""


@dataclass(frozen=True)
class Arrival:
    """A job of the stream."""

    name: str
    pods: int
    cpus: int
    """Processors that each pod requests."""


def rack_of(index: int) -> str:
    """Return the rack of the fake node with this number."""
    return f"rack-{index // NODES_PER_RACK:02}"


def zone_of(index: int) -> str:
    """Return the zone of the fake node with this number."""
    return f"zone-{index // (NODES_PER_RACK * RACKS_PER_ZONE)}"


def labels(index: int) -> dict[str, str]:
    """Return the topology labels of the fake node with this number."""
    return {RACK: rack_of(index), ZONE: zone_of(index)}


def tenants(nodes: int, seed: int) -> list[tuple[int, int]]:
    """Return (number of the node, processors) of pods of other owners, which fill `LOAD` of the cluster at
    random.
    """
    chance = random.Random(f"tenants {seed}")
    free = [CPUS] * nodes
    left = round(LOAD * CPUS * nodes)
    found = []
    while left:
        node = chance.randrange(nodes)
        cpus = min(chance.choice(_TENANT_CPUS), free[node], left)
        if cpus:
            found.append((node, cpus))
            free[node] -= cpus
            left -= cpus
    return found


def stream(count: int, seed: int) -> Iterator[Arrival]:
    """Yield the jobs of a stream in the order of their arrival."""
    chance = random.Random(f"jobs {seed}")
    for number in range(count):
        yield Arrival(f"job-{number}", chance.randint(_MIN_PODS, _MAX_PODS), chance.choice(_POD_CPUS))


class Racks:
    """The free processors of each node, as the bench itself counts them."""

    def __init__(self, names: Sequence[str]) -> None:
        self._index = {name: index for index, name in enumerate(names)}
        self.free = dict.fromkeys(names, CPUS)
        self.labels = {name: labels(index) for index, name in enumerate(names)}

    def add(self, node: str, cpus: int) -> None:
        """Count a pod on a node. A negative number counts its end."""
        self.free[node] -= cpus

    def fits_one_rack(self, arrival: Arrival) -> bool:
        """Return True if some placement puts all pods of the job into one rack. All its pods are equal, so
        the sum over the nodes is exact.
        """
        room: Counter[str] = Counter()
        for node, free in self.free.items():
            room[rack_of(self._index[node])] += max(0, free) // arrival.cpus
        return max(room.values()) >= arrival.pods

    def racks_used(self, nodes: Sequence[str]) -> int:
        """Return the number of racks of these nodes."""
        return len({rack_of(self._index[node]) for node in nodes})

    def ring_hops(self, nodes: Sequence[str]) -> int:
        """Return the hops of the ring through nodes in the order of the ranks: between neighbours 0 on one
        node, 1 in one rack, 2 in one zone, otherwise 3.
        """
        return sum(self._hops(one, other) for one, other in zip(nodes, [*nodes[1:], nodes[0]], strict=True))

    def _hops(self, one: str, other: str) -> int:
        ours, theirs = self._index[one], self._index[other]
        if ours == theirs:
            return 0
        if rack_of(ours) == rack_of(theirs):
            return 1
        return 2 if zone_of(ours) == zone_of(theirs) else 3
