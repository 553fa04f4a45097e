"""The byte format of a shard, which is the part of a generation that one rank saves: an index, then the
tensors.

    0       magic
    8       length of the index, little endian
    16      index: JSON
    data    tensors, each at a multiple of 64 bytes

The layout depends only on the names, shapes and types of the saved values. While these stay the same, the
offsets stay the same too, and unchanged bytes give unchanged chunks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MAGIC = b"CONVOY\x00\x01"
ALIGN = 64
_PAGE = 4096
_HEADER = 16

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes, for each dimension, of a part of a tensor."""


class ShardError(ValueError):
    """Raised for bytes that are not a shard."""


class TooLarge(ValueError):
    """Raised if the index of a shard does not fit into the space that the layout reserves for it. The shard
    then needs a new layout.
    """


@dataclass(frozen=True)
class Part:
    """A box of a tensor, and the position of its bytes in the shard."""

    name: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    """Shape of the whole tensor."""
    dtype: str
    at: int
    length: int

    @property
    def box(self) -> Box:
        """The box as offsets and sizes, for each dimension."""
        return self.offsets, self.sizes


@dataclass(frozen=True)
class Layout:
    """The positions of the index and of all tensors in a shard."""

    parts: tuple[Part, ...]
    data: int
    """Offset of the first tensor in bytes."""
    size: int
    """Size of the whole shard in bytes."""

    @property
    def signature(self) -> str:
        """A digest of the layout. Layouts with equal digests hold the same boxes at the same positions."""
        return hashlib.sha256(f"{self.data}:{self.text}".encode()).hexdigest()[:16]

    @cached_property
    def text(self) -> str:
        """The parts as JSON, as the index contains them. Every save uses the same text."""
        return _json([_row(part) for part in self.parts])

    def resembles(self, other: Layout) -> bool:
        """Return True if both layouts hold the same boxes in the same order, even at other positions."""
        return [replace(one, at=0) for one in self.parts] == [replace(one, at=0) for one in other.parts]


@dataclass(frozen=True)
class Shard:
    """The content of a shard that was read."""

    parts: tuple[Part, ...]
    values: Mapping[str, str]
    """The encoded values that are not tensors, by name (values.py)."""
    facts: Mapping[str, Any]
    """Metadata of the generation, such as the version of torch."""
    bytes: memoryview

    def tensor(self, part: Part) -> torch.Tensor:
        """Return the tensor that `part` describes, as a view of the shard's own memory."""
        import torch  # noqa: PLC0415 - programs without torch read the index and the bytes

        dtype = getattr(torch, part.dtype)
        count = part.length // torch.empty(0, dtype=dtype).element_size()
        if not count:
            return torch.empty(part.sizes, dtype=dtype)
        return torch.frombuffer(self.bytes, dtype=dtype, count=count, offset=part.at).view(part.sizes)


def lay_out(wanted: Sequence[tuple[str, Box, tuple[int, ...], torch.dtype]], index: int) -> Layout:
    """Return a layout in which the tensors of `wanted` follow an index of `index` bytes.

    Each entry of `wanted` is a name, a box, the shape of the whole tensor, and its type.
    """
    import torch  # noqa: PLC0415

    # Reserve spare space for the index, so that the values can grow a little without a new layout.
    data = _round(_HEADER + 2 * index + 64 * 1024, _PAGE)
    at = data
    parts = []
    for name, (offsets, sizes), shape, dtype in wanted:
        length = torch.empty(0, dtype=dtype).element_size()
        for size in sizes:
            length *= size
        kind = str(dtype).removeprefix("torch.")
        parts.append(Part(name, offsets, sizes, shape, kind, at, length))
        at = _round(at + length, ALIGN)
    return Layout(tuple(parts), data, _round(at, _PAGE))


def index(layout: Layout, values: Mapping[str, str], facts: Mapping[str, Any]) -> bytes:
    """Return the index of a shard as bytes."""
    text = f'{{"facts":{_json(dict(facts))},"parts":{layout.text},"values":{_json(dict(values))}}}'
    return text.encode()


def fits(layout: Layout, values: Mapping[str, str], facts: Mapping[str, Any]) -> bool:
    """Return True if the index of a shard with these values and facts fits into the space that `layout`
    reserves.
    """
    return _HEADER + len(index(layout, values, facts)) <= layout.data


def write(
    target: memoryview,
    layout: Layout,
    tensors: Sequence[torch.Tensor],
    values: Mapping[str, str],
    facts: Mapping[str, Any],
) -> None:
    """Write a shard with this layout into `target`. Raises TooLarge if the index does not fit into its
    space.
    """
    import torch  # noqa: PLC0415

    from convoy_workloads.runtime.tiers.memory_copy import MemoryCopy  # noqa: PLC0415

    text = index(layout, values, facts)
    if _HEADER + len(text) > layout.data:
        raise TooLarge(f"an index of {len(text)} bytes does not fit")
    whole = torch.frombuffer(target, dtype=torch.uint8, count=layout.size)
    copy, start = MemoryCopy(), whole.data_ptr()
    for part, tensor in zip(layout.parts, tensors):  # noqa: B905 - `strict` came with Python 3.10
        if not part.length:
            continue
        same = tuple(tensor.shape) == part.sizes and tensor.dtype is getattr(torch, part.dtype)
        if not (same and copy.add_bytes(start + part.at, tensor)):
            room = whole[part.at : part.at + part.length].view(tensor.dtype).view(part.sizes)
            copy.add(room, tensor.detach())
    copy.run()
    target[_HEADER : _HEADER + len(text)] = text
    # Zero all other bytes, so that equal states give equal bytes regardless of the buffer's previous content.
    target[_HEADER + len(text) : layout.data] = bytes(layout.data - _HEADER - len(text))
    target[8:_HEADER] = len(text).to_bytes(8, "little")
    target[:8] = MAGIC


def read(source: memoryview) -> Shard:
    """Parse the shard in `source`, whose digest the caller has verified. Raises ShardError if the bytes are
    not a shard.
    """
    if len(source) < _HEADER or bytes(source[:8]) != MAGIC:
        raise ShardError("no shard")
    length = int.from_bytes(source[8:_HEADER], "little")
    try:
        body = json.loads(bytes(source[_HEADER : _HEADER + length]))
        parts = tuple(
            Part(row[0], tuple(row[1]), tuple(row[2]), tuple(row[3]), row[4], row[5], row[6])
            for row in body["parts"]
        )
        values, facts = body["values"], body["facts"]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ShardError(f"the index of the shard cannot be read: {type(error).__name__}: {error}") from error
    if any(part.at + part.length > len(source) for part in parts):
        raise ShardError("a tensor lies beyond the end of the shard")
    return Shard(parts, values, facts, source)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _row(part: Part) -> list[Any]:
    return [
        part.name,
        list(part.offsets),
        list(part.sizes),
        list(part.shape),
        part.dtype,
        part.at,
        part.length,
    ]


def _round(value: int, to: int) -> int:
    return -(-value // to) * to
