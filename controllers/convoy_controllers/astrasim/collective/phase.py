"""A phase of a chunk: one algorithm over the ranks of one logical dimension."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_controllers.astrasim.collective.rings import Ring
from convoy_controllers.astrasim.collective.trees import TreePlace
from convoy_controllers.astrasim.parameters import AlgorithmKind, CollectiveType


@dataclass(frozen=True, slots=True)
class RingPhase:
    """A phase on a ring: ring, direct or halving-doubling."""

    type: CollectiveType
    kind: AlgorithmKind
    ring: Ring
    size: int
    """Bytes on each rank when the phase starts."""
    queue: int
    clockwise: bool = True
    window: int | None = None

    @property
    def final_size(self) -> int:
        """Return the bytes on each rank when the phase ends."""
        match self.type:
            case CollectiveType.ALL_GATHER:
                return self.size * len(self.ring.members)
            case CollectiveType.REDUCE_SCATTER:
                return self.size // len(self.ring.members)
            case _:
                return self.size


@dataclass(frozen=True, slots=True)
class TreePhase:
    """An all-reduce on one of two binary trees."""

    place: TreePlace
    """Neighbours as ranks."""
    size: int
    queue: int

    @property
    def final_size(self) -> int:
        """Return the bytes on each rank when the phase ends."""
        return self.size


Phase = RingPhase | TreePhase
