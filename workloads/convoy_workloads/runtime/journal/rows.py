"""The compact form of gradients whose rows are mostly zero, such as those of an embedding. It stores only
nonzero rows and their indexes.

A row counts as zero only if all its bits are zero. So rows of negative zeros or NaNs are stored.
"""

from __future__ import annotations

import torch

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types that expose the bits of an element as an integer, by bytes per element."""
INDEX = torch.int32
_MIN_ROWS = 256
"""Minimum number of rows for which the compact form is tried."""
_PROBES = 64


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of the tensor's memory as integers, in the same shape."""
    return tensor.detach().view(INTEGERS[tensor.element_size()])


def nonzero_rows(part: torch.Tensor) -> torch.Tensor | None:
    """Return the indexes of the rows (dimension 0) that have any bit set.

    Return None if the compact form would not be smaller. A few rows are checked first, so that a gradient
    with few zero rows is not read completely.
    """
    if part.dim() < 2 or part.shape[0] < _MIN_ROWS or not part.numel() or not part.is_contiguous():
        return None
    # Reduce bytes, because torch needs many times longer to reduce whole words.
    flat = part.detach().view(torch.uint8).view(part.shape[0], -1)
    probes = flat[:: len(flat) // _PROBES].amax(dim=1)
    if 2 * int(probes.count_nonzero()) > len(probes):
        return None
    found = flat.amax(dim=1).nonzero().view(-1)
    width = flat.shape[1]
    return found.to(INDEX) if packed_bytes(len(found), width) < len(flat) * width else None


def packed_bytes(count: int, width: int) -> int:
    """Return the size in bytes of `count` rows of `width` bytes each, with their indexes."""
    return rows_offset(count) + count * width


def rows_offset(count: int) -> int:
    """Return the offset in bytes at which `count` rows start after their indexes."""
    return -(-count * INDEX.itemsize // 64) * 64
