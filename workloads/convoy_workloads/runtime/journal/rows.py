"""The compact form of gradients whose rows are mostly zero, such as an embedding's: only the other rows are
stored.

A row is left out if all its bits are zero. A row of negative zeros or NaNs is stored.
"""

from __future__ import annotations

import torch

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer types for access to an element's bits, by bytes per element."""
INDEX = torch.int32
_MIN_ROWS = 256
"""Fewest rows for which the compact form is tried."""
_PROBES = 64


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same memory as integers of the same shape."""
    return tensor.detach().view(INTEGERS[tensor.element_size()])


def nonzero_rows(part: torch.Tensor) -> torch.Tensor | None:
    """Return the indexes of the rows (dimension 0) that have any bit set. Return None if storing all rows
    is not larger.

    A few rows are checked first, so that a dense gradient is not read completely.
    """
    if part.dim() < 2 or part.shape[0] < _MIN_ROWS or not part.numel() or not part.is_contiguous():
        return None
    # Reduce bytes, because torch reduces whole words many times more slowly.
    flat = part.detach().view(torch.uint8).view(part.shape[0], -1)
    probes = flat[:: len(flat) // _PROBES].amax(dim=1)
    if 2 * int(probes.count_nonzero()) > len(probes):
        return None
    found = flat.amax(dim=1).nonzero().view(-1)
    width = flat.shape[1]
    return found.to(INDEX) if packed_bytes(len(found), width) < len(flat) * width else None


def packed_bytes(count: int, width: int) -> int:
    """Return the bytes of `count` rows of `width` bytes with their indexes."""
    return rows_offset(count) + count * width


def rows_offset(count: int) -> int:
    """Return the offset of the rows after their indexes."""
    return -(-count * INDEX.itemsize // 64) * 64
