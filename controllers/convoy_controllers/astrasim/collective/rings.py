"""Logical rings: the ranks that take part in one phase of a collective, in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring as one of its ranks sees it."""

    members: Sequence[int]
    """Ranks in clockwise order."""
    index: int
    """Place of the own rank."""
    group: bool = False
    """True for a communication group that is smaller than the cluster."""

    def peer(self, distance: int) -> int:
        """Return the rank at a clockwise distance, which may be negative."""
        return self.members[(self.index + distance) % len(self.members)]


def dimension_ring(rank: int, sizes: Sequence[int], number: int) -> Ring:
    """Return the ring of a rank in one dimension. `sizes`: the number of ranks in each dimension."""
    stride = math.prod(sizes[:number])
    size = sizes[number]
    index = rank // stride % size
    first = rank - index * stride
    return Ring(range(first, first + size * stride, stride), index)
