"""The reader of a segment (segment.py defines the format). Every offset, size and row index is checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from convoy_workloads.runtime.journal import rows
from convoy_workloads.runtime.journal.allowed import dense
from convoy_workloads.runtime.journal.kernel import Kernel
from convoy_workloads.runtime.journal.segment import (
    DTYPES,
    HEADER,
    MAGIC,
    Head,
    Piece,
    Segment,
    SegmentError,
    Share,
    Step,
    product,
    view,
)
from convoy_workloads.runtime.tiers import values as texts
from convoy_workloads.runtime.tiers.shard import ALIGN, Box, Part


def read(source: memoryview) -> Segment:
    """Read a segment. Raises SegmentError if the header or the index has changed since the segment was
    sealed.

    Every offset, size and row index in the result is within its bounds.
    """
    if len(source) < HEADER or bytes(source[:8]) != MAGIC or any(source[56:HEADER]):
        raise SegmentError("no segment")
    start, length = (int.from_bytes(source[at : at + 8], "little") for at in (8, 16))
    if start < HEADER or start + length > len(source):
        raise SegmentError("the index lies beyond the end of the segment")
    text = bytes(source[start : start + length])
    if hashlib.sha256(text).digest() != bytes(source[24:56]):
        raise SegmentError("the digest of the index does not match")
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
        raise SegmentError(
            f"the index of the segment cannot be read: {type(error).__name__}: {error}"
        ) from error


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
        if kind not in DTYPES or len(strides) != len(share.shape) or not dense(share.shape, strides):
            raise SegmentError(f"the form of a gradient of {share.name} is invalid")
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
        raise SegmentError("the values or facts are malformed")
    return Segment(head, tuple(steps), _groups(known[_whole(body["after"])]), parts, values, facts, source)


def _piece(
    row: Sequence[Any], forms: Sequence[tuple[Share, str, tuple[int, ...]]], source: memoryview, end: int
) -> Piece:
    share, kind, strides = forms[_whole(row[0])]
    at, length = _whole(row[1]), _whole(row[2])
    count = _whole(row[3]) if len(row) == 4 else None
    size = DTYPES[kind].itemsize
    if count is None:
        expected = product(share.sizes) * size
    else:
        if len(share.sizes) < 2 or count > share.sizes[0]:
            raise SegmentError(f"a gradient of {share.name} has too many rows")
        expected = rows.packed_bytes(count, product(share.sizes[1:]) * size)
    _context(share.name, at, length, expected, end)
    if count:
        indexes = view(source, at, rows.INDEX, (count,))
        if int(indexes[0]) < 0 or int(indexes[-1]) >= share.sizes[0] or bool((indexes.diff() <= 0).any()):
            raise SegmentError(f"a gradient of {share.name} has invalid row indexes")
    return Piece(share, kind, strides, at, length, count)


def _part(row: Sequence[Any], end: int) -> Part:
    name, offsets, sizes, shape = _name(row[0]), _sizes(row[1]), _sizes(row[2]), _sizes(row[3])
    part = Part(name, offsets, sizes, shape, _name(row[4]), _whole(row[5]), _whole(row[6]))
    _within(name, part.box, shape)
    _context(name, part.at, part.length, product(sizes) * DTYPES[part.dtype].itemsize, end)
    return part


def _context(name: str, at: int, length: int, expected: int, end: int) -> None:
    if length != expected or at < HEADER or at % ALIGN or at + length > end:
        raise SegmentError(f"the position of {name} is invalid")


def _within(name: str, box: Box, shape: tuple[int, ...]) -> None:
    offsets, sizes = box
    fits = len(offsets) == len(sizes) == len(shape)
    if not fits or any(o + s > whole for o, s, whole in zip(offsets, sizes, shape)):  # noqa: B905
        raise SegmentError(f"the box of {name} exceeds its shape")


def _groups(value: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise SegmentError("the groups are malformed")
    return value


def _marks(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise SegmentError("the values of a gradient scaler are malformed")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise SegmentError(f"{value!r} is not a text")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise SegmentError(f"{value!r} is not a size")
    return value


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple(_whole(one) for one in value)
