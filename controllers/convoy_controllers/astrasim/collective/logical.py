"""The logical dimensions of a collective, as one rank sees them."""

from __future__ import annotations

from collections.abc import Sequence

from convoy_controllers.astrasim.collective.errors import NodeError
from convoy_controllers.astrasim.collective.halving import halving_doubling_steps
from convoy_controllers.astrasim.collective.phase import Phase, RingPhase, TreePhase
from convoy_controllers.astrasim.collective.rings import Ring, dimension_ring
from convoy_controllers.astrasim.collective.trees import TreePlace, places, tree_place
from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    AnyNetwork,
    CollectiveType,
    Implementation,
)


class RingDimension:
    """A logical dimension whose ranks form a ring."""

    def __init__(self, ring: Ring, implementation: Implementation) -> None:
        self._ring = ring
        self._implementation = implementation
        self.size = len(ring.members)

    def phase(self, type_: CollectiveType, size: int, queue: tuple[int, bool]) -> Phase:
        """Return a phase in this dimension. Raises NodeError if the algorithm cannot run it."""
        kind = self._implementation.kind
        if kind is AlgorithmKind.HALVING_DOUBLING and type_ is CollectiveType.ALL_TO_ALL:
            raise NodeError("halving-doubling has no all-to-all")
        if self._least_message(type_, size) == 0:
            raise NodeError(
                f"a chunk of {size} bytes is too small for {kind} over {self.size} ranks: a message would be "
                "empty; use fewer splits"
            )
        return RingPhase(type_, kind, self._ring, size, *queue, self._implementation.window)

    def _least_message(self, type_: CollectiveType, size: int) -> int:
        """Return the size of the smallest message of a phase."""
        if self._implementation.kind is AlgorithmKind.HALVING_DOUBLING:
            _, sizes = halving_doubling_steps(type_, self.size, self._ring.index, size)
            return min(sizes[:-1])
        return size if type_ is CollectiveType.ALL_GATHER else size // self.size


class TreeDimension:
    """A logical dimension whose ranks form two binary trees. Its phases use the trees in turns."""

    def __init__(self, rank: int, first: int, stride: int, ranks: int) -> None:
        self._rank = rank
        self._first = first
        self._stride = stride
        self.size = ranks
        self._phases = 0

    def phase(self, type_: CollectiveType, size: int, queue: tuple[int, bool]) -> Phase:
        """Return an all-reduce in this dimension, for every type of collective."""
        root_last = self._phases % 2 == 0
        self._phases += 1
        position, off = divmod(self._rank - self._first, self._stride)
        found = None if off or position < 0 else tree_place(position, self.size, root_last)
        if found is None:
            raise NodeError(
                f"the double binary tree of {self.size} ranks holds {places(self.size)} of them, a power of "
                f"two, and rank {self._rank} is not among them"
            )
        parent = None if found.parent is None else self._as_rank(found.parent)
        place = TreePlace(parent, tuple(map(self._as_rank, found.children)))
        return TreePhase(place, size, queue[0])

    def _as_rank(self, position: int) -> int:
        return self._first + position * self._stride


LogicalDimension = RingDimension | TreeDimension


def logical_dimensions(
    rank: int, network: AnyNetwork, implementations: Sequence[Implementation]
) -> tuple[LogicalDimension, ...]:
    """Return the logical dimensions of a collective over all ranks, one for each implementation.

    A flat implementation is one ring over all ranks, and the last logical dimension.
    """
    found: list[LogicalDimension] = []
    stride = 1
    for number, one in enumerate(implementations):
        ranks = network.sizes[number]
        if one.flat:
            found.append(RingDimension(Ring(range(network.ranks), rank), one))
            break
        if one.kind is AlgorithmKind.DOUBLE_BINARY_TREE:
            # The tree of the last entry starts as if its dimension were the last of the network.
            last = number == len(implementations) - 1
            first = rank % stride if last else rank - rank % (stride * ranks) + rank % stride
            found.append(TreeDimension(rank, first, stride, ranks))
        else:
            found.append(RingDimension(dimension_ring(rank, network.sizes, number), one))
        stride *= ranks
    return tuple(found)
