"""Steps of one rank as bytes: what the optimizer consumed, then an index.

    0       magic
    8       offset of the index, little endian
    16      length of the index
    24      sha256 of the index
    56      zeros
    64      tensors, each at a multiple of 64 bytes, step after step
    index   JSON

The index is last since it grows with every step. `read` refuses any changed byte of the first 64 and of the
index. A changed byte of a tensor, or between two, is for the digest of the whole, which the caller has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from convoy_workloads.runtime.journal import rows
from convoy_workloads.runtime.journal.allowed import dense
from convoy_workloads.runtime.journal.kernel import Kernel
from convoy_workloads.runtime.tiers import values as texts
from convoy_workloads.runtime.tiers.shard import ALIGN, Box, Part

MAGIC = b"CONVOYJ\x01"
_HEADER = 64
_DTYPES = {
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
_SLACK = 1024
"""Bytes of an index beside what is counted."""
_ROW = 64
"""Of a gradient, before its step is counted."""


class SegmentError(ValueError):
    """Bytes that are no segment."""


class NoRoom(ValueError):
    """More than the segment has place for."""


@dataclass(frozen=True)
class Share:
    """A box of a parameter whose gradients a rank journals."""

    name: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    """Of the whole parameter."""

    @property
    def box(self) -> Box:
        """Which part of the parameter it is."""
        return self.offsets, self.sizes


@dataclass(frozen=True)
class Head:
    """Whose steps a segment holds, and behind which state."""

    rank: int
    world: int
    base: str
    """Name of the full checkpoint that the chain begins with."""
    number: int
    """Segments of this rank between the base and this one."""
    first: int
    """Steps between the base and the first of the segment."""
    structure: str
    """Digest of the optimizer's groups (groups.py)."""
    kernel: Kernel
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class Piece:
    """The gradient of one share in one step, and where its bytes lie."""

    share: Share
    dtype: str
    strides: tuple[int, ...]
    """Of the whole gradient, as the optimizer saw it."""
    at: int
    length: int
    count: int | None
    """Rows that are stored, behind their indexes; None: all of them."""


@dataclass(frozen=True)
class Step:
    """What one call of `step` consumed. A share without a piece had no gradient."""

    groups: Sequence[Mapping[str, Any]]
    """The scalars of each group."""
    scaling: Mapping[str, Any]
    """A gradient scaler's marks, mostly none."""
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Segment:
    """A segment that is read."""

    head: Head
    steps: tuple[Step, ...]
    after: Sequence[Mapping[str, Any]]
    """The scalars of each group when it was sealed."""
    parts: tuple[Part, ...]
    """Tensors saved in full as they were when it was sealed, such as a model's buffers."""
    values: Mapping[str, str]
    """By name, the texts of what is no tensor (tiers/values.py)."""
    facts: Mapping[str, Any]
    bytes: memoryview

    def gradient(self, piece: Piece, into: torch.Tensor) -> None:
        """Copies a piece into a tensor of the share's sizes."""
        sizes = piece.share.sizes
        dtype = _DTYPES[piece.dtype]
        if piece.count is None:
            if piece.length:
                into.copy_(_view(self.bytes, piece.at, dtype, sizes))
            return
        into.zero_()
        if piece.count:
            indexes = _view(self.bytes, piece.at, rows.INDEX, (piece.count,))
            behind = piece.at + rows.rows_at(piece.count)
            found = _view(self.bytes, behind, dtype, (piece.count, *sizes[1:]))
            into.index_copy_(0, indexes.to(into.device, torch.int64), found.to(into.device))

    def tensor(self, part: Part) -> torch.Tensor:
        """A tensor saved in full; a view of the segment's own memory."""
        if not part.length:
            return torch.empty(part.sizes, dtype=_DTYPES[part.dtype])
        return _view(self.bytes, part.at, _DTYPES[part.dtype], part.sizes)


class Writer:
    """Writes one segment, step by step, into memory that it is given."""

    def __init__(self, target: memoryview, head: Head) -> None:
        """`target`: writable bytes; what they held is void from now on."""
        if target.readonly or len(target) < _HEADER:
            raise NoRoom("no writable memory for a segment")
        target[:_HEADER] = bytes(_HEADER)
        self._target = target
        self._whole = torch.frombuffer(target, dtype=torch.uint8)
        self._head = head
        self._at = _HEADER
        self._pending: list[list[int]] = []
        self._begun = _HEADER
        self._forms: dict[tuple[int, str, tuple[int, ...]], int] = {}
        self._texts: dict[str, int] = {}
        self._steps: list[str] = []
        self._parts: list[list[Any]] = []
        self._index = len(_json(_head(head))) + _SLACK

    @property
    def steps(self) -> int:
        """Steps that are in it."""
        return len(self._steps)

    @property
    def left(self) -> int:
        """Bytes that are left for tensors and for what is said of them."""
        return len(self._target) - self._at - self._index - _ROW * len(self._pending)

    def gradient(self, share: int, gradient: torch.Tensor, part: torch.Tensor) -> None:
        """Copies the `part` of a gradient that belongs to the share of that number, for the coming step."""
        indexes = rows.held(part)
        form = self._form(share, gradient)
        if indexes is None:
            at = self._copy(part)
            self._pending.append([form, at, self._at_end - at])
            return
        count = len(indexes)
        width = part.stride(0) * part.element_size()
        at = self._reserve(rows.packed(count, width))
        if count:
            self._room(at, indexes.dtype, (count,)).copy_(indexes)
            self._pad(at + count * indexes.element_size(), at + rows.rows_at(count))
            kept = self._room(at + rows.rows_at(count), part.dtype, (count, *part.shape[1:]))
            if part.device.type == "cpu":
                torch.index_select(part.detach(), 0, indexes, out=kept)
            else:
                kept.copy_(part.detach().index_select(0, indexes))
        self._pending.append([form, at, self._at_end - at, count])

    def drop(self) -> None:
        """Forgets the gradients of a step that was not made after all."""
        self._pending = []
        self._at = self._begun

    def step(self, groups: str, scaling: str) -> None:
        """The step whose gradients were copied is made; texts as tiers/values.py writes them."""
        numbers = [self._text(groups), self._text(scaling)]
        row = _json([*numbers, self._pending])
        self._steps.append(row)
        self._index += len(row) + 1
        self._pending = []
        self._begun = self._at

    def tensor(self, name: str, box: Box, shape: tuple[int, ...], tensor: torch.Tensor) -> None:
        """Copies a tensor, or a box of one, that is saved in full."""
        at = self._copy(tensor)
        kind = str(tensor.dtype).removeprefix("torch.")
        row = [name, list(box[0]), list(box[1]), list(shape), kind, at, self._at_end - at]
        self._parts.append(row)
        self._index += len(_json(row)) + 1
        self._begun = self._at

    def seal(self, after: str, values: Mapping[str, str], facts: Mapping[str, Any]) -> int:
        """Writes the index; how many bytes the segment has. NoRoom when they are too many."""
        self.drop()
        body = {
            **_head(self._head),
            "after": self._text(after),
            "facts": dict(facts),
            "forms": [[share, kind, list(strides)] for share, kind, strides in self._forms],
            "parts": self._parts,
            "texts": list(self._texts),
            "values": dict(values),
        }
        text = f'{_json(body)[:-1]},"steps":[{",".join(self._steps)}]}}'.encode()
        end = self._at + len(text)
        if end > len(self._target):
            raise NoRoom(f"an index of {len(text)} bytes")
        self._target[self._at : end] = text
        self._target[24:56] = hashlib.sha256(text).digest()
        self._target[16:24] = len(text).to_bytes(8, "little")
        self._target[8:16] = self._at.to_bytes(8, "little")
        self._target[:8] = MAGIC
        return end

    def _copy(self, tensor: torch.Tensor) -> int:
        length = tensor.numel() * tensor.element_size()
        at = self._reserve(length)
        if length:
            self._room(at, tensor.dtype, tuple(tensor.shape)).copy_(tensor.detach())
        return at

    def _reserve(self, length: int) -> int:
        at = self._at
        if length + ALIGN > self.left:
            raise NoRoom(f"{length} bytes, {self.left} are left")
        self._at_end = at + length
        self._at = -(-self._at_end // ALIGN) * ALIGN
        # Equal steps make equal bytes: nothing of an earlier segment is left.
        self._pad(self._at_end, self._at)
        return at

    def _pad(self, start: int, end: int) -> None:
        self._target[start:end] = bytes(end - start)

    def _room(self, at: int, dtype: torch.dtype, sizes: tuple[int, ...]) -> torch.Tensor:
        length = dtype.itemsize
        for size in sizes:
            length *= size
        return self._whole[at : at + length].view(dtype).view(sizes)

    def _form(self, share: int, gradient: torch.Tensor) -> int:
        key = (share, str(gradient.dtype).removeprefix("torch."), tuple(gradient.stride()))
        if key not in self._forms:
            self._forms[key] = len(self._forms)
            self._index += len(_json(key)) + 1
        return self._forms[key]

    def _text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self._texts)
            self._index += len(_json(text)) + 1
        return self._texts[text]


def read(source: memoryview) -> Segment:
    """A segment whose bytes, as far as they are an index, are as they were. SegmentError for anything else.

    Afterwards every offset, size and row index in it lies within its bounds.
    """
    if len(source) < _HEADER or bytes(source[:8]) != MAGIC or any(source[56:_HEADER]):
        raise SegmentError("no segment")
    start, length = (int.from_bytes(source[at : at + 8], "little") for at in (8, 16))
    if start < _HEADER or start + length > len(source):
        raise SegmentError("the index lies beyond the end")
    text = bytes(source[start : start + length])
    if hashlib.sha256(text).digest() != bytes(source[24:56]):
        raise SegmentError("the index is not as it was written")
    try:
        return _segment(json.loads(text), source, start)
    except SegmentError:
        raise
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        RuntimeError,
        ImportError,
        OverflowError,
    ) as error:
        raise SegmentError(f"the index cannot be read: {type(error).__name__}: {error}") from error


def _segment(body: Mapping[str, Any], source: memoryview, end: int) -> Segment:
    shares = tuple(
        Share(_name(row[0]), _sizes(row[1]), _sizes(row[2]), _sizes(row[3])) for row in body["shares"]
    )
    for share in shares:
        _within(share.name, share.box, share.shape)
    head = Head(
        _whole(body["rank"]),
        _whole(body["world"]),
        _name(body["base"]),
        _whole(body["number"]),
        _whole(body["first"]),
        _name(body["structure"]),
        Kernel.from_json(body["kernel"]),
        shares,
    )
    forms = [(shares[_whole(row[0])], _name(row[1]), _sizes(row[2])) for row in body["forms"]]
    for share, kind, strides in forms:
        if kind not in _DTYPES or len(strides) != len(share.shape) or not dense(share.shape, strides):
            raise SegmentError(f"a gradient of {share.name} has no such form")
    known = [texts.loads(one) for one in body["texts"]]
    steps = []
    for groups, scaling, found in body["steps"]:
        pieces = tuple(_piece(row, forms, source, end) for row in found)
        if len({piece.share for piece in pieces}) != len(pieces):
            raise SegmentError("a step has two gradients for one share")
        steps.append(Step(_groups(known[_whole(groups)]), _marks(known[_whole(scaling)]), pieces))
    parts = tuple(_part(row, end) for row in body["parts"])
    values, facts = body["values"], body["facts"]
    if not (isinstance(facts, dict) and all(isinstance(one, str) for one in values.values())):
        raise SegmentError("values or facts are none")
    return Segment(head, tuple(steps), _groups(known[_whole(body["after"])]), parts, values, facts, source)


def _piece(
    row: Sequence[Any], forms: Sequence[tuple[Share, str, tuple[int, ...]]], source: memoryview, end: int
) -> Piece:
    share, kind, strides = forms[_whole(row[0])]
    at, length = _whole(row[1]), _whole(row[2])
    count = _whole(row[3]) if len(row) == 4 else None
    size = _DTYPES[kind].itemsize
    if count is None:
        expected = _product(share.sizes) * size
    else:
        if len(share.sizes) < 2 or count > share.sizes[0]:
            raise SegmentError(f"a gradient of {share.name} has too many rows")
        expected = rows.packed(count, _product(share.sizes[1:]) * size)
    _place(share.name, at, length, expected, end)
    if count:
        indexes = _view(source, at, rows.INDEX, (count,))
        if int(indexes[0]) < 0 or int(indexes[-1]) >= share.sizes[0] or bool((indexes.diff() <= 0).any()):
            raise SegmentError(f"a gradient of {share.name} has rows that are none")
    return Piece(share, kind, strides, at, length, count)


def _part(row: Sequence[Any], end: int) -> Part:
    name, offsets, sizes, shape = _name(row[0]), _sizes(row[1]), _sizes(row[2]), _sizes(row[3])
    part = Part(name, offsets, sizes, shape, _name(row[4]), _whole(row[5]), _whole(row[6]))
    _within(name, part.box, shape)
    _place(name, part.at, part.length, _product(sizes) * _DTYPES[part.dtype].itemsize, end)
    return part


def _place(name: str, at: int, length: int, expected: int, end: int) -> None:
    if length != expected or at < _HEADER or at % ALIGN or at + length > end:
        raise SegmentError(f"{name} lies where nothing can be")


def _within(name: str, box: Box, shape: tuple[int, ...]) -> None:
    offsets, sizes = box
    fits = len(offsets) == len(sizes) == len(shape)
    if not fits or any(o + s > whole for o, s, whole in zip(offsets, sizes, shape)):  # noqa: B905
        raise SegmentError(f"the box of {name} is not within it")


def _groups(value: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise SegmentError("groups are none")
    return value


def _marks(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise SegmentError("marks of a scaler are none")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise SegmentError(f"{value!r} is no text")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise SegmentError(f"{value!r} is no size")
    return value


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple(_whole(one) for one in value)


def _product(sizes: Sequence[int]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found


def _view(source: memoryview, at: int, dtype: torch.dtype, sizes: Sequence[int]) -> torch.Tensor:
    return torch.frombuffer(source, dtype=dtype, count=_product(sizes), offset=at).view(tuple(sizes))


def _head(head: Head) -> dict[str, Any]:
    return {
        "base": head.base,
        "first": head.first,
        "kernel": head.kernel.to_json(),
        "number": head.number,
        "rank": head.rank,
        "shares": [[one.name, list(one.offsets), list(one.sizes), list(one.shape)] for one in head.shares],
        "structure": head.structure,
        "world": head.world,
    }


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
