"""Gradients of which most rows are zero, as an embedding's: only the others are stored.

A row is left out when every bit of it is zero: one of negative zeros or NaNs stays.
"""

from __future__ import annotations

import torch

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes of an element, a type to look at its bits."""
INDEX = torch.int32
_FEWEST = 256
"""Rows below which nothing is gained."""
_PROBES = 64


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers, of the same shape."""
    return tensor.detach().view(INTEGERS[tensor.element_size()])


def nonzero_rows(part: torch.Tensor) -> torch.Tensor | None:
    """Indexes of the rows (along dimension 0) with any bit set; None where storing all is not larger.

    A few rows are looked at first: a dense gradient costs no pass over it.
    """
    if part.dim() < 2 or part.shape[0] < _FEWEST or not part.numel() or not part.is_contiguous():
        return None
    # The largest byte: torch reduces whole words many times slower.
    flat = part.detach().view(torch.uint8).view(part.shape[0], -1)
    probes = flat[:: len(flat) // _PROBES].amax(dim=1)
    if 2 * int(probes.count_nonzero()) > len(probes):
        return None
    found = flat.amax(dim=1).nonzero().view(-1)
    width = flat.shape[1]
    return found.to(INDEX) if packed_bytes(len(found), width) < len(flat) * width else None


def packed_bytes(count: int, width: int) -> int:
    """Bytes of so many rows of `width` bytes with their indexes."""
    return rows_offset(count) + count * width


def rows_offset(count: int) -> int:
    """Where, behind the indexes, the rows begin."""
    return -(-count * INDEX.itemsize // 64) * 64
