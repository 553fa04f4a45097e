"""The number of values in an encoded message, counted before the message is decoded.

An attribute of two bytes takes about a hundred bytes once it is decoded. So a bound on the bytes of a message
does not bound the memory.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_NODE_NUMBERS, _NODE_ATTRIBUTES = (4, 5), 10
_METADATA_ATTRIBUTES = 2
_ELEMENT_BYTES = {4: 8, 6: 4, 20: 4, 22: 8, 24: 4, 26: 8}
"""Bytes of an element, by the field of AttributeProto, of lists whose elements have a fixed size."""
_LISTS = range(4, 33, 2)
"""Fields of AttributeProto that hold lists."""
_TEXTS = (30, 32)
_CONTINUED = bytes(range(0x80, 0x100))


def values_of_node(frame: bytes, most: int) -> int:
    """Return the number of dependencies, attributes and list elements of an encoded node; more than `most`
    as soon as there are so many.
    """
    return _count(frame, most, _NODE_NUMBERS, _NODE_ATTRIBUTES)


def values_of_metadata(frame: bytes, most: int) -> int:
    """Return the number of attributes and list elements of an encoded GlobalMetadata; more than `most` as
    soon as there are so many.
    """
    return _count(frame, most, (), _METADATA_ATTRIBUTES)


def _count(frame: bytes, most: int, numbers: tuple[int, ...], attributes: int) -> int:
    found = 0
    for field, wire, begin, end in _fields(frame, 0, len(frame)):
        if field in numbers:
            found += _varints(frame, begin, end) if wire == _LENGTH else 1
        elif field == attributes and wire == _LENGTH:
            found += 1
            for place, kind, first, last in _fields(frame, begin, end):
                if place in _LISTS and kind == _LENGTH:
                    found = _count_list(frame, first, last, place, found, most)
        if found > most:
            break
    return found


def _count_list(frame: bytes, begin: int, end: int, place: int, found: int, most: int) -> int:
    for field, wire, first, last in _fields(frame, begin, end):
        if field != 1 or found > most:
            continue
        if wire != _LENGTH or place in _TEXTS:
            found += 1
        elif place in _ELEMENT_BYTES:
            found += (last - first) // _ELEMENT_BYTES[place]
        else:
            found += _varints(frame, first, last)
    return found


def _varints(frame: bytes, begin: int, end: int) -> int:
    """Return the number of packed varints: the bytes that end one."""
    return len(frame[begin:end].translate(None, _CONTINUED))


def _fields(frame: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type, begin and end of each field. Stop where the message is damaged."""
    while at < end:
        tag, at = _varint(frame, at, end)
        wire = tag & 7
        begin = at
        if wire == _VARINT:
            _, at = _varint(frame, at, end)
        elif wire == _LENGTH:
            length, begin = _varint(frame, at, end)
            at = begin + length
        elif wire in _FIXED_SIZES:
            at += _FIXED_SIZES[wire]
        if at > end:
            return
        yield tag >> 3, wire, begin, at


def _varint(frame: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a varint and the place after it, which is beyond `end` for a damaged one."""
    value = shift = 0
    while at < end and shift < 70:
        byte = frame[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    return value, end + 1
