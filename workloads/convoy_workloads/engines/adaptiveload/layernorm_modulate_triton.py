"""Triton kernels of the fused LayerNorm-Modulate. This module is imported only on a machine with a GPU.

- Forward: one program for each row, which reads it once.
- Backward: one program for each part of S of a sample. It reads each row once, and computes from it the
  gradient of x. It keeps the sums for the gradients of shift and scale in registers, and writes one partial
  sum for each column.

All sums are in fp32.
"""

from typing import Any

import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

PROGRAMS = 1024
"""Wanted number of programs of the backward pass."""
LEAST_ROWS = 16
"""Smallest number of rows of a part of S."""
PREFETCHED_BYTES = 1 << 14
"""Largest size of a row, padded to a power of two, at which programs load the next rows while they compute.
Four such rows need 64 KiB of a multiprocessor's shared memory.
"""


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
def _backward(  # type: ignore[no-untyped-def]
    gradient, x, scale, mean_in, reciprocal_in, out, shift_out, scale_out, length, size, parts, part_rows,
    BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    sample, part = program // parts, program % parts
    columns = tl.arange(0, BLOCK)
    mask = columns < size
    factor = 1.0 + tl.load(scale + sample * size + columns, mask=mask, other=0.0).to(tl.float32)
    shift_sum = tl.zeros((BLOCK,), tl.float32)
    scale_sum = tl.zeros((BLOCK,), tl.float32)
    first = part * part_rows
    for number in tl.range(first, tl.minimum(first + part_rows, length), num_stages=STAGES):
        row = sample * length + number
        mean, reciprocal = tl.load(mean_in + row), tl.load(reciprocal_in + row)
        value = tl.load(x + row * size + columns, mask=mask, other=0.0).to(tl.float32)
        given = tl.load(gradient + row * size + columns, mask=mask, other=0.0).to(tl.float32)
        normalised = tl.where(mask, (value - mean) * reciprocal, 0.0)
        shift_sum += given
        scale_sum += given * normalised
        found = given * factor
        average, along = tl.sum(found, 0) / size, tl.sum(found * normalised, 0) / size
        tl.store(out + row * size + columns, reciprocal * (found - average - normalised * along), mask=mask)
    target = program * size + columns
    tl.store(shift_out + target, shift_sum, mask=mask)
    tl.store(scale_out + target, scale_sum, mask=mask)


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
        part_rows = max(LEAST_ROWS, batch * length // PROGRAMS)
        parts = -(-length // part_rows)
        sums = torch.empty(2, batch, parts, size, dtype=torch.float32, device=x.device)
        if x.numel():
            block = triton.next_power_of_2(size)
            _backward[(batch * parts,)](
                gradient, x, scale, mean, reciprocal, found, sums[0], sums[1], length, size, parts, part_rows,
                BLOCK=block,
                STAGES=3 if block * x.element_size() <= PREFETCHED_BYTES else 1,
                num_warps=4 if block <= 2048 else 8 if block <= 8192 else 16,
            )  # fmt: skip
        shift_gradient, scale_gradient = sums.sum(2).to(scale.dtype)
        return found, shift_gradient, scale_gradient, None
