"""The dependencies among the nodes of one rank, and the order in which ready nodes are issued.

A rank runs at most one CPU node, one GPU node, and one send or collective at a time. A receive needs no slot.
Ready nodes are issued in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from heapq import heappop, heappush

from convoy_controllers.astrasim.parameters import ComputeNode, MessageNode, Node


class Slot(IntEnum):
    """A resource of a rank that runs one node at a time."""

    CPU = 0
    GPU = 1
    COMMUNICATION = 2
    NONE = 3
    """Receives: any number runs at a time."""


def slot(node: Node) -> Slot:
    """Return the slot of a node."""
    match node:
        case ComputeNode(on_cpu=True):
            return Slot.CPU
        case ComputeNode():
            return Slot.GPU
        case MessageNode(send=False):
            return Slot.NONE
        case _:
            return Slot.COMMUNICATION


class Graph:
    """The nodes that wait for dependencies, those that are ready, and those that run."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.running: set[int] = set()
        self._missing = {node.id: len(set(node.deps)) for node in self.nodes.values()}
        self._children: dict[int, list[int]] = {}
        self._ready: tuple[list[int], ...] = ([], [], [], [])
        """Heaps of ready nodes by slot."""
        self._busy = [False] * len(Slot)
        for node in self.nodes.values():
            for parent in set(node.deps):
                self._children.setdefault(parent, []).append(node.id)
            if not node.deps:
                self._add_ready(node)

    @property
    def idle(self) -> bool:
        """Return True if no node is ready or runs."""
        return not self.running and not any(self._ready)

    @property
    def waiting(self) -> list[int]:
        """Return the nodes whose dependencies have not ended."""
        return [node for node, missing in self._missing.items() if missing]

    @property
    def ready(self) -> list[int]:
        """Return the nodes that are ready and wait for a slot."""
        return sorted(node for heap in self._ready for node in heap)

    def next(self) -> Node | None:
        """Return the ready node with the lowest id whose slot is free, and occupy the slot."""
        best: Slot | None = None
        for one in Slot:
            heap = self._ready[one]
            if heap and not self._busy[one] and (best is None or heap[0] < self._ready[best][0]):
                best = one
        if best is None:
            return None
        node = self.nodes[heappop(self._ready[best])]
        self._busy[best] = best is not Slot.NONE
        self.running.add(node.id)
        return node

    def end(self, node: Node) -> list[Node]:
        """Free the slot of a node. Return the nodes that have become ready; add them with `add`."""
        self.running.remove(node.id)
        self._busy[slot(node)] = False
        freed = []
        for child in self._children.get(node.id, ()):
            self._missing[child] -= 1
            if not self._missing[child]:
                freed.append(self.nodes[child])
        return freed

    def add(self, nodes: Iterable[Node]) -> None:
        """Add ready nodes."""
        for node in nodes:
            self._add_ready(node)

    def _add_ready(self, node: Node) -> None:
        heappush(self._ready[slot(node)], node.id)
