"""The blocks below the diagonal of a symmetric matrix, in one flat buffer.

Row k of the blocks has k blocks. So s blocks of b rows need s (s - 1) / 2 * b^2 elements, less than half of
the (s b)^2 elements of the matrix. A matrix product can write its rows directly into the buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor


class BlockTriangle:
    """The layout of the triangle for blocks of these sizes."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """`sizes`: number of rows, and of columns, of each block on the diagonal."""
        self.sizes = tuple(sizes)
        self.starts = (0, *accumulate(self.sizes))
        """First row of each block, and the number of all rows."""
        ends = accumulate(size * start for size, start in zip(self.sizes, self.starts, strict=False))
        self._offsets = (0, *ends)
        self._places: dict[torch.device, Tensor] = {}

    @property
    def elements(self) -> int:
        """Return the number of elements of the buffer."""
        return self._offsets[-1]

    @property
    def rows(self) -> int:
        """Return the number of rows of the matrix."""
        return self.starts[-1]

    def row(self, flat: Tensor, block: int) -> Tensor:
        """Return a view of the blocks to the left of diagonal block `block`: its rows, and all columns of
        earlier blocks.
        """
        part = flat[self._offsets[block] : self._offsets[block + 1]]
        return part.view(self.sizes[block], self.starts[block])

    def pack(self, matrix: Tensor, flat: Tensor) -> None:
        """Copy the blocks below the diagonal of a contiguous matrix into the buffer, by one operation."""
        device = matrix.device
        if device not in self._places:
            starts = torch.tensor(self.starts[:-1]).repeat_interleave(torch.tensor(self.sizes))
            below = torch.arange(self.rows) < starts[:, None]
            self._places[device] = below.flatten().nonzero()[:, 0].to(device, torch.int32)
        torch.index_select(matrix.view(-1), 0, self._places[device], out=flat[: self.elements])
