"""The byte format of a segment, which holds steps of one rank: first the inputs of the optimizer, then an
index.

    0       magic
    8       offset of the index, little endian
    16      length of the index
    24      sha256 of the index
    56      zeros
    64      tensors, each at a multiple of 64 bytes, step after step
    index   JSON

The index is last because it grows with every step. segment_writer.py writes a segment, and
segment_reader.py reads one. Reading detects any changed byte in the first 64 bytes and in the index. A
changed byte of a tensor is detected only by the digest of the whole segment, which the caller has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from convoy_workloads.runtime.journal import rows
from convoy_workloads.runtime.journal.kernel import Kernel
from convoy_workloads.runtime.tiers.shard import Box, Part

MAGIC = b"CONVOYJ\x01"
HEADER = 64
"""Number of bytes before the first tensor."""
DTYPES = {
    str(one).removeprefix("torch."): one
    for one in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}


class SegmentError(ValueError):
    """Raised for bytes that are not a segment."""


class NoRoom(ValueError):
    """Raised for data that does not fit into the memory of the segment."""


@dataclass(frozen=True)
class Share:
    """A box of a parameter. The rank of the segment journals the gradients in this box."""

    name: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    """The shape of the whole parameter."""

    @property
    def box(self) -> Box:
        """The box as offsets and sizes, for each dimension."""
        return self.offsets, self.sizes


@dataclass(frozen=True)
class Head:
    """The identity of a segment: the rank that recorded it, and the state that its first step continues
    from.
    """

    rank: int
    world: int
    base: str
    """Name of the full checkpoint that the chain starts with."""
    number: int
    """Number of earlier segments of this rank since the base."""
    first: int
    """Number of steps between the base and the first step of this segment."""
    structure: str
    """Digest of the optimizer's parameter groups (groups.py)."""
    kernel: Kernel
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class Piece:
    """The gradient of one share in one step, and the position of its bytes in the segment."""

    share: Share
    dtype: str
    strides: tuple[int, ...]
    """The strides of the gradient of the whole parameter, as the optimizer received it."""
    at: int
    length: int
    count: int | None
    """Number of stored rows if only nonzero rows are stored, after their indexes (rows.py); None if all
    rows are stored.
    """


@dataclass(frozen=True)
class Step:
    """The input of one call of the optimizer's `step`. If a share has no piece in `pieces`, its parameter
    had no gradient.
    """

    groups: Sequence[Mapping[str, Any]]
    """The scalars of each parameter group, as `groups.scalars` returned them before the step."""
    scaling: Mapping[str, Any]
    """The values of a gradient scaler; usually empty."""
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Segment:
    """The content of a segment, as segment_reader.py returns it."""

    head: Head
    steps: tuple[Step, ...]
    after: Sequence[Mapping[str, Any]]
    """The scalars of each parameter group when the segment was sealed."""
    parts: tuple[Part, ...]
    """Positions of the tensors that were saved in full when the segment was sealed, such as a model's
    buffers.
    """
    values: Mapping[str, str]
    """The encoded values that are not tensors, by name (tiers/values.py)."""
    facts: Mapping[str, Any]
    bytes: memoryview

    def gradient(self, piece: Piece, into: torch.Tensor) -> None:
        """Copy the gradient in `piece` into the tensor `into`, which has the sizes of the piece's share."""
        sizes = piece.share.sizes
        dtype = DTYPES[piece.dtype]
        if piece.count is None:
            if piece.length:
                into.copy_(view(self.bytes, piece.at, dtype, sizes))
            return
        into.zero_()
        if piece.count:
            indexes = view(self.bytes, piece.at, rows.INDEX, (piece.count,))
            behind = piece.at + rows.rows_offset(piece.count)
            found = view(self.bytes, behind, dtype, (piece.count, *sizes[1:]))
            into.index_copy_(0, indexes.to(into.device, torch.int64), found.to(into.device))

    def tensor(self, part: Part) -> torch.Tensor:
        """Return a tensor that was saved in full, as a view of the segment's own memory."""
        if not part.length:
            return torch.empty(part.sizes, dtype=DTYPES[part.dtype])
        return view(self.bytes, part.at, DTYPES[part.dtype], part.sizes)


def product(sizes: Sequence[int]) -> int:
    """Return the number of elements in a tensor with these dimensions."""
    found = 1
    for size in sizes:
        found *= size
    return found


def view(source: memoryview, at: int, dtype: torch.dtype, sizes: Sequence[int]) -> torch.Tensor:
    """Return a tensor of these sizes in the memory of `source`, starting at byte `at`. The memory is not
    copied.
    """
    return torch.frombuffer(source, dtype=dtype, count=product(sizes), offset=at).view(tuple(sizes))
