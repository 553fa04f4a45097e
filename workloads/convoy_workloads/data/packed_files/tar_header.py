"""Reads a header of a tar archive: the formats of POSIX (ustar, pax), of GNU tar and of the old V7 tar.

A header is a block of 512 bytes. Numbers are octal text, or binary (base 256) if the first bit is set.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import NamedTuple

BLOCK = 512
"""Bytes of a header. The data of an entry is padded to a multiple of it."""
ZEROS = bytes(BLOCK)
"""A block that marks the end of an archive."""
_FIELDS = Struct("100s24x12s12x8ss100s6s82x155s12x")
_USTAR = b"ustar\0"
_SUM_AT, _SUM_LENGTH = 148, 8


class HeaderError(ValueError):
    """A header is damaged. The message names the field."""


class Header(NamedTuple):
    """The fields of a header that tell where the data of an entry is."""

    name: bytes
    size: int
    type: bytes
    link: bytes


def parse_header(block: bytes) -> Header:
    """Return the fields of a header. Raises HeaderError if it is damaged."""
    name, size, stored, kind, link, magic, prefix = _FIELDS.unpack(block)
    if not _sum_is_right(block, _number(stored, "checksum")):
        raise HeaderError("its checksum is wrong")
    name = name.partition(b"\0")[0]
    if magic == _USTAR and prefix[0]:
        name = prefix.partition(b"\0")[0] + b"/" + name
    return Header(name, _number(size, "size"), kind, link.partition(b"\0")[0])


def _number(field: bytes, what: str) -> int:
    if field[0] & 0x80:
        # The first bit marks the base; the second is the sign.
        value = int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
        if field[0] & 0x40:
            raise HeaderError(f"its {what} is negative")
        return value
    text = field.partition(b"\0")[0].strip()
    try:
        value = int(text or b"0", 8)
    except ValueError as error:
        raise HeaderError(f"its {what} is no octal number") from error
    if value < 0:
        raise HeaderError(f"its {what} is negative")
    return value


def _sum_is_right(block: bytes, stored: int) -> bool:
    """Return True if `stored` is the sum of the block's bytes, where the checksum itself counts as spaces.

    The lower half of Adler-32 is 1 plus the sum of the bytes modulo 65,521. A sum of 256 bytes is smaller, so
    two halves give the exact sum, much faster than a loop.
    """
    found = (zlib.adler32(block[:256]) & 0xFFFF) + (zlib.adler32(block[256:]) & 0xFFFF) - 2
    field = block[_SUM_AT : _SUM_AT + _SUM_LENGTH]
    if found - sum(field) + _SUM_LENGTH * ord(" ") == stored:
        return True
    blanked = block[:_SUM_AT] + b" " * _SUM_LENGTH + block[_SUM_AT + _SUM_LENGTH :]
    # Some old programs added up signed bytes.
    return sum(one - 256 if one > 127 else one for one in blanked) == stored


def parse_pax(data: bytes) -> dict[str, bytes]:
    """Return the records of a pax header, which extend the next header. Raises HeaderError if one is
    damaged.
    """
    found: dict[str, bytes] = {}
    position = 0
    while position < len(data):
        length_text, _, _ = data[position : position + 20].partition(b" ")
        length = int(length_text) if length_text.isdigit() else 0
        record = data[position + len(length_text) + 1 : position + length]
        key, equals, value = record[:-1].partition(b"=")
        if not equals or record[-1:] != b"\n" or position + length > len(data):
            raise HeaderError("a record of its pax header is damaged")
        found[key.decode(errors="surrogateescape")] = value
        position += length
    return found
