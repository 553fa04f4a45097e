"""The plan of a collective on one rank: its chunks, and the phases of each chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from convoy_controllers.astrasim.collective.errors import NodeError
from convoy_controllers.astrasim.collective.logical import LogicalDimension, RingDimension, logical_dimensions
from convoy_controllers.astrasim.collective.phase import Phase
from convoy_controllers.astrasim.collective.queue_ids import QueueIds
from convoy_controllers.astrasim.collective.rings import Ring
from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    CollectiveNode,
    CollectiveType,
    Implementation,
    Optimization,
    Simulation,
)
from convoy_controllers.astrasim.result import FindingKind


def chunk_sizes(size: int, splits: int, ranks: int, gathers: bool) -> tuple[int, int]:
    """Return the number of chunks of a collective and the size of each.

    All chunks have the full size `size // splits`, so chunks may hold more bytes than the collective. A chunk
    of fewer bytes than ranks grows to one byte per rank, except for an all-gather.
    """
    chunk = size // splits
    if not gathers and ranks > chunk:
        return splits, ranks
    if chunk == 0:
        raise NodeError(
            f"an all-gather of {size} bytes cannot be split into {splits} chunks: use fewer splits",
            FindingKind.ENDLESS,
        )
    return -(-size // chunk), chunk


class Planner:
    """Plans the collectives of one rank."""

    def __init__(self, rank: int, simulation: Simulation) -> None:
        self._rank = rank
        self._simulation = simulation
        queues = simulation.options.queues
        self._queues = [QueueIds(number * queues, queues) for number in range(len(simulation.network.sizes))]
        self._global: dict[CollectiveType, tuple[LogicalDimension, ...]] = {}

    def plan(self, node: CollectiveNode) -> list[list[Phase]]:
        """Return the phases of each chunk of a collective. Raises NodeError if the node cannot run."""
        network, system = self._simulation.network, self._simulation.system
        dimensions = self._dimensions(node)
        count, size = chunk_sizes(
            node.size, system.splits, network.ranks, node.type is CollectiveType.ALL_GATHER
        )
        involved = [
            number
            for number, one in enumerate(dimensions)
            if one.size > 1 and self._is_involved(node, number)
        ]
        if not involved:
            raise NodeError("no dimension with more than one rank takes part in the collective")
        return [self._phases(node.type, dimensions, involved, size) for _ in range(count)]

    def _is_involved(self, node: CollectiveNode, dimension: int) -> bool:
        # A communication group ignores the dimensions of its nodes.
        if node.involved is None or node.group is not None:
            return True
        return dimension < len(node.involved) and node.involved[dimension]

    def _dimensions(self, node: CollectiveNode) -> Sequence[LogicalDimension]:
        implementations = self._simulation.system.implementations.get(node.type, ())
        if not implementations:
            raise NodeError(f"the system names no implementation of {node.type}")
        members = None if node.group is None else self._simulation.workload.groups[node.group]
        if members is None or len(members) == self._simulation.network.ranks:
            if node.type not in self._global:
                self._global[node.type] = logical_dimensions(
                    self._rank, self._simulation.network, implementations
                )
            return self._global[node.type]
        if self._rank not in members:
            raise NodeError(f"the rank is not in communication group {node.group}")
        # A smaller group is one ring, whatever the network's dimensions.
        one = implementations[0] if len(implementations) == 1 else Implementation(AlgorithmKind.RING)
        if one.kind is AlgorithmKind.DOUBLE_BINARY_TREE:
            raise NodeError("a communication group smaller than the cluster has no double binary tree")
        return (RingDimension(Ring(members, members.index(self._rank), group=True), one),)

    def _phases(
        self, type_: CollectiveType, dimensions: Sequence[LogicalDimension], involved: list[int], size: int
    ) -> list[Phase]:
        found: list[Phase] = []

        def add(part: CollectiveType, number: int, queue: Callable[[QueueIds], tuple[int, bool]]) -> None:
            nonlocal size
            phase = dimensions[number].phase(part, size, queue(self._queues[number]))
            found.append(phase)
            size = phase.final_size

        baseline = self._simulation.system.optimization is Optimization.BASELINE
        if type_ is not CollectiveType.ALL_REDUCE or baseline:
            upward = type_ is not CollectiveType.ALL_GATHER
            for number in involved if upward else reversed(involved):
                add(type_, number, QueueIds.any)
            return found
        for number in involved[:-1]:
            add(CollectiveType.REDUCE_SCATTER, number, QueueIds.up)
        add(CollectiveType.ALL_REDUCE, involved[-1], QueueIds.up)
        for number in reversed(involved[:-1]):
            add(CollectiveType.ALL_GATHER, number, QueueIds.down)
        return found
