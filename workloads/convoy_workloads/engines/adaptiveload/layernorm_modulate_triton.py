"""Triton kernels of the fused LayerNorm-Modulate. This module is imported only on a machine with a GPU.

- Forward and gradient of x: one program for each row, which reads it once.
- Gradients of shift and scale: one program for each tile of D, sample and part of S. It goes down the rows,
  so that neighbouring threads read neighbouring columns, and writes one partial sum for each column.

All sums are in fp32.
"""

from typing import Any

import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

TILE = 128
"""Columns of a tile."""
ROWS = 32
"""Rows that a program of the column sums reads at once."""
PART = 512
"""Rows of a part of S."""


@triton.jit  # type: ignore[untyped-decorator]
def _forward(x, shift, scale, y, mean_out, reciprocal_out, length, size, epsilon, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    sample = row // length
    columns = tl.arange(0, BLOCK)
    mask = columns < size
    value = tl.load(x + row * size + columns, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(value, 0) / size
    centred = tl.where(mask, value - mean, 0.0)
    reciprocal = tl.rsqrt(tl.sum(centred * centred, 0) / size + epsilon)
    factor = 1.0 + tl.load(scale + sample * size + columns, mask=mask, other=0.0).to(tl.float32)
    added = tl.load(shift + sample * size + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + row * size + columns, centred * reciprocal * factor + added, mask=mask)
    tl.store(mean_out + row, mean)
    tl.store(reciprocal_out + row, reciprocal)


@triton.jit  # type: ignore[untyped-decorator]
def _backward_rows(gradient, x, scale, mean_in, reciprocal_in, out, length, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    sample = row // length
    columns = tl.arange(0, BLOCK)
    mask = columns < size
    mean, reciprocal = tl.load(mean_in + row), tl.load(reciprocal_in + row)
    value = tl.load(x + row * size + columns, mask=mask, other=0.0).to(tl.float32)
    normalised = tl.where(mask, (value - mean) * reciprocal, 0.0)
    factor = 1.0 + tl.load(scale + sample * size + columns, mask=mask, other=0.0).to(tl.float32)
    found = tl.load(gradient + row * size + columns, mask=mask, other=0.0).to(tl.float32) * factor
    average, along = tl.sum(found, 0) / size, tl.sum(found * normalised, 0) / size
    tl.store(out + row * size + columns, reciprocal * (found - average - normalised * along), mask=mask)


@triton.jit  # type: ignore[untyped-decorator]
def _backward_columns(  # type: ignore[no-untyped-def]
    gradient, x, mean_in, reciprocal_in, shift_out, scale_out, length, size, parts,
    TILE: tl.constexpr, ROWS: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    columns = tl.program_id(0) * TILE + tl.arange(0, TILE)
    sample, part = tl.program_id(1).to(tl.int64), tl.program_id(2)
    in_size = columns < size
    shift_sum = tl.zeros((TILE,), tl.float32)
    scale_sum = tl.zeros((TILE,), tl.float32)
    for first in range(0, PART, ROWS):
        rows = part * PART + first + tl.arange(0, ROWS)
        in_length = rows < length
        at = sample * length + rows
        mask = in_length[:, None] & in_size[None, :]
        place = at[:, None] * size + columns[None, :]
        given = tl.load(gradient + place, mask=mask, other=0.0).to(tl.float32)
        value = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(mean_in + at, mask=in_length, other=0.0)
        reciprocal = tl.load(reciprocal_in + at, mask=in_length, other=0.0)
        shift_sum += tl.sum(given, 0)
        scale_sum += tl.sum(given * (value - mean[:, None]) * reciprocal[:, None], 0)
    target = (sample * parts + part) * size + columns
    tl.store(shift_out + target, shift_sum, mask=in_size)
    tl.store(scale_out + target, scale_sum, mask=in_size)


class TritonOperation(torch.autograd.Function):
    """The fused operation, computed by Triton."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shift: Tensor, scale: Tensor, epsilon: float) -> Tensor:
        """Return y. Keep x, the factor, and two numbers for each row."""
        x, shift, scale = x.contiguous(), shift.contiguous(), scale.contiguous()
        batch, length, size = x.shape
        y = torch.empty_like(x)
        mean, reciprocal = torch.empty(2, batch * length, dtype=torch.float32, device=x.device)
        if x.numel():
            block = triton.next_power_of_2(size)
            _forward[(batch * length,)](
                x, shift, scale, y, mean, reciprocal, length, size, epsilon, BLOCK=block
            )
        ctx.save_for_backward(x, scale, mean, reciprocal)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Return the gradients of x, shift and scale."""
        x, scale, mean, reciprocal = ctx.saved_tensors
        gradient = gradient.contiguous()
        batch, length, size = x.shape
        found = torch.empty_like(x)
        parts = -(-length // PART)
        sums = torch.zeros(2, batch, parts, size, dtype=torch.float32, device=x.device)
        if x.numel():
            block = triton.next_power_of_2(size)
            _backward_rows[(batch * length,)](
                gradient, x, scale, mean, reciprocal, found, length, size, BLOCK=block
            )
            _backward_columns[(-(-size // TILE), batch, parts)](
                gradient, x, mean, reciprocal, sums[0], sums[1], length, size, parts,
                TILE=TILE, ROWS=ROWS, PART=PART,
            )  # fmt: skip
        shift_gradient, scale_gradient = sums.sum(2).to(scale.dtype)
        return found, shift_gradient, scale_gradient, None
