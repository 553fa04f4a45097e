"""A rank's part of the Gram matrix of several batches, below the diagonal blocks.

A product for each batch computes no element in vain. But a GPU is slow with many products of few rows: it
computes the whole matrix in one product, and copies the blocks below the diagonal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from convoy_workloads.comm.triangle import BlockTriangle
from convoy_workloads.optim.precision import product_into

THIN_ROWS = 64
"""Largest batch for which a GPU computes the whole matrix."""
WHOLE_ROWS = 4096
"""Largest number of rows of a matrix that a GPU computes as a whole. It has 64 MiB in fp32."""


def gram_into(flat: Tensor, inputs: Tensor, layout: BlockTriangle, sums: torch.dtype) -> None:
    """Write the blocks into the buffer `flat`.

    `inputs`: the rows of all batches. `sums`: the type of the sums.
    """
    if inputs.is_cuda and max(layout.sizes) <= THIN_ROWS and layout.rows <= WHOLE_ROWS:
        from_whole_matrix(flat, inputs, layout, sums)
    else:
        batch_by_batch(flat, inputs, layout, sums)


def from_whole_matrix(flat: Tensor, inputs: Tensor, layout: BlockTriangle, sums: torch.dtype) -> None:
    """Write the blocks into the buffer `flat` after one product for the whole matrix."""
    matrix = torch.empty(layout.rows, layout.rows, dtype=flat.dtype, device=flat.device)
    product_into(matrix, inputs, inputs.t(), sums)
    layout.pack(matrix, flat)


def batch_by_batch(flat: Tensor, inputs: Tensor, layout: BlockTriangle, sums: torch.dtype) -> None:
    """Write the blocks into the buffer `flat` by one product for each batch with all earlier rows."""
    for block in range(1, len(layout.sizes)):
        start, end = layout.starts[block], layout.starts[block + 1]
        product_into(layout.row(flat, block), inputs[start:end], inputs[:start].t(), sums)
