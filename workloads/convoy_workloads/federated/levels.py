"""The ranks that adapters may have, as prefixes of each other.

Dimension 5 of a client with rank 8 is dimension 5 of a client with rank 16. The dimensions between two
neighbouring ranks are a segment: all clients that have one of its dimensions have all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

Factors = Mapping[str, tuple[Tensor, Tensor]]
"""The adapter of each layer, by the layer's name: A of shape [rank, inputs] and B of shape [outputs, rank].
The layer adds scale * B A x to its output.
"""


@dataclass(frozen=True)
class Levels:
    """The allowed ranks, ascending."""

    ranks: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.ranks or self.ranks[0] < 1 or any(one >= other for one, other in pairwise(self.ranks)):
            raise ValueError(f"ranks: {list(self.ranks)} are not ascending numbers above 0")

    @property
    def largest(self) -> int:
        """Return the largest rank."""
        return self.ranks[-1]

    def up_to(self, rank: int) -> tuple[int, ...]:
        """Return the ranks up to `rank`. Raises ValueError if `rank` is not one of them."""
        if rank not in self.ranks:
            raise ValueError(f"rank: {rank} is not one of {', '.join(map(str, self.ranks))}")
        return self.ranks[: self.ranks.index(rank) + 1]

    def segments(self) -> Sequence[tuple[int, int]]:
        """Return the first dimension of each segment and the one after its last."""
        return list(pairwise((0, *self.ranks)))


def prefix(factors: Factors, rank: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the first `rank` dimensions of each adapter, as views."""
    return {name: (a[:rank], b[:, :rank]) for name, (a, b) in factors.items()}
