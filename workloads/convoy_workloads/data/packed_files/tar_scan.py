"""Finds all files of a tar archive. Only the headers are read; the data between them is skipped.

An archive that cannot be read as a whole is refused: a program must not train on a part of its data without
a message.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from pathlib import Path

from convoy_workloads.data.packed_files.errors import PackedFilesError
from convoy_workloads.data.packed_files.tar_header import (
    BLOCK,
    ZEROS,
    Header,
    HeaderError,
    parse_header,
    parse_pax,
)
from convoy_workloads.data.packed_files.tar_index import TarIndex

MAX_EXTENSION = 1 << 20
"""Maximum bytes of a long name or a pax header."""
_WINDOW = 1 << 18
"""Bytes that are read at once while entries are small."""
_FAR = 1 << 16
"""Bytes between two headers from which on only the headers are read."""
_TAIL = 1 << 20
"""Bytes after the end of the archive that must be zero. `tar` pads to 10 KiB."""
_SIZE_DIGITS = 20
_FILES = frozenset({b"0", b"\0", b"7"})
_LONG_NAME, _LONG_LINK, _HARD_LINK = b"L", b"K", b"1"
_PAX = frozenset({b"x", b"X"})
_PAX_GLOBAL = b"g"
_SKIPPED = {
    b"2": "symbolic links",
    b"3": "devices",
    b"4": "devices",
    b"5": "directories",
    b"6": "pipes",
    b"D": "directories",
    b"V": "labels",
}
"""Entries that are no files."""
_WITH_DATA = frozenset({b"D", b"V"})
"""Entries among them that may have data, which is skipped."""
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"\x04\x22\x4d\x18": ("lz4", "unlz4"),
}


def scan(path: Path, fd: int, size: int) -> TarIndex:
    """Return the files of the open archive `fd` of `size` bytes. `path` is for messages.

    Raises PackedFilesError if the archive is compressed, damaged or truncated, or has entries that cannot
    be read in place.
    """
    return _Scan(path, fd, size).run()


class _Scan:
    def __init__(self, path: Path, fd: int, size: int) -> None:
        self._path, self._fd, self._size = path, fd, size
        self._window, self._start = b"", 0
        self._names: list[str] = []
        self._offsets, self._sizes = array("Q"), array("Q")
        self._newest: dict[str, int] = {}
        """Number of the newest file of each name."""
        self._dropped: set[int] = set()
        self._skipped: Counter[str] = Counter()
        self._global: dict[str, bytes] = {}
        """Records of pax headers for all following entries."""
        self._pax: dict[str, bytes] = {}
        """Records of the pax header for the next entry."""
        self._long: dict[bytes, bytes] = {}
        """GNU's long name and long link name of the next entry."""

    def run(self) -> TarIndex:
        position = 0
        while (block := self._block(position)) != ZEROS:
            try:
                position = self._entry(parse_header(block), position)
            except HeaderError as error:
                raise self._first(position, block, error) from error
        if self._pax or self._long:
            raise self._error(position, "the entry after the last header is missing")
        self._check_tail(position)
        return self._index()

    def _block(self, position: int) -> bytes:
        """Return the block at `position`. Raises PackedFilesError at the end of the file."""
        within = position - self._start
        block = self._window[within : within + BLOCK]
        if len(block) == BLOCK:
            return block
        far = position > self._start + len(self._window) + _FAR
        self._window = os.pread(self._fd, BLOCK if far else _WINDOW, position)
        self._start = position
        if len(self._window) < BLOCK:
            raise self._error(position, "the archive ends without its end mark: it is truncated")
        return self._window[:BLOCK]

    def _entry(self, header: Header, position: int) -> int:
        """Record the entry of a header at `position`. Return the position of the next header."""
        data = position + BLOCK
        if header.type in (_LONG_NAME, _LONG_LINK):
            self._long[header.type] = self._extension(header, data).partition(b"\0")[0]
            return self._after(data, header.size, position)
        if header.type in _PAX:
            self._pax.update(parse_pax(self._extension(header, data)))
            return self._after(data, header.size, position)
        if header.type == _PAX_GLOBAL:
            self._global.update(parse_pax(self._extension(header, data)))
            return self._after(data, header.size, position)
        return self._member(self._extended(header), data, position)

    def _extension(self, header: Header, data: int) -> bytes:
        if header.size > MAX_EXTENSION:
            raise HeaderError(f"its extension has {header.size} bytes, more than {MAX_EXTENSION}")
        self._after(data, header.size, data - BLOCK)
        return os.pread(self._fd, header.size, data)

    def _extended(self, header: Header) -> Header:
        """Return the header with the values of the extensions before it."""
        if not (self._long or self._pax or self._global):
            return header
        pax = {**self._global, **self._pax}
        if any(key.startswith("GNU.sparse.") for key in pax):
            raise HeaderError("its file is sparse: make the archive without `tar --sparse`")
        size = pax.get("size") or b"%d" % header.size
        if not size.isdigit() or len(size) > _SIZE_DIGITS:
            raise HeaderError("the size in its pax header is no number")
        name = pax.get("path") or self._long.get(_LONG_NAME) or header.name
        link = pax.get("linkpath") or self._long.get(_LONG_LINK) or header.link
        self._pax, self._long = {}, {}
        return Header(name, int(size), header.type, link)

    def _member(self, header: Header, data: int, position: int) -> int:
        kind, name = header.type, _text(header.name)
        if kind == b"\0" and name.endswith("/"):
            kind = b"5"  # The old V7 format has no type for directories.
        if kind in _FILES:
            self._add(name, data, header.size)
            return self._after(data, header.size, position)
        if kind == _HARD_LINK:
            self._add_link(name, _text(header.link))
            return data
        if (what := _SKIPPED.get(kind)) is None:
            raise HeaderError(_refused(kind, name))
        self._skipped[what] += 1
        self._replace(name.rstrip("/"))
        return self._after(data, header.size, position) if kind in _WITH_DATA else data

    def _add(self, name: str, data: int, size: int) -> None:
        if "\0" in name or not name:
            raise HeaderError("its name is empty or has a zero byte")
        if name in self._newest:
            self._replace(name)
        self._newest[name] = len(self._names)
        self._names.append(name)
        self._offsets.append(data)
        self._sizes.append(size)

    def _add_link(self, name: str, target: str) -> None:
        """Add a hard link, which is another name of an earlier file."""
        number = self._newest.get(target)
        if number is None:
            raise HeaderError(f"{name!r} is a hard link to {target!r}, which is not before it in the archive")
        self._add(name, self._offsets[number], self._sizes[number])

    def _replace(self, name: str) -> None:
        """Drop the file `name`, if there is one: a later entry has the same name."""
        number = self._newest.pop(name, None)
        if number is not None:
            self._dropped.add(number)

    def _after(self, data: int, size: int, position: int) -> int:
        """Return the position after data. Raises PackedFilesError if the file ends before."""
        if data + size > self._size:
            more = data + size - self._size
            raise self._error(position, f"the data of this entry needs {more} more bytes: it is truncated")
        return data + -(-size // BLOCK) * BLOCK

    def _check_tail(self, end: int) -> None:
        tail = os.pread(self._fd, _TAIL, end)
        if tail.strip(b"\0"):
            at = end + len(tail) - len(tail.lstrip(b"\0"))
            raise self._error(
                at,
                "there is data after the end of the archive. If archives were joined by `cat`, pass them to"
                " PackedFiles one by one, or join them with `tar --concatenate`",
            )

    def _index(self) -> TarIndex:
        if not self._dropped:
            return TarIndex(self._names, self._offsets, self._sizes, dict(self._skipped))
        kept = [number for number in range(len(self._names)) if number not in self._dropped]
        return TarIndex(
            [self._names[number] for number in kept],
            array("Q", (self._offsets[number] for number in kept)),
            array("Q", (self._sizes[number] for number in kept)),
            dict(self._skipped),
            len(self._dropped),
        )

    def _first(self, position: int, block: bytes, error: HeaderError) -> PackedFilesError:
        """Return the error about the header at `position`. Another format is named at the start of a file."""
        for magic, (name, tool) in _COMPRESSED.items():
            if position == 0 and block.startswith(magic):
                return PackedFilesError(
                    f"{self._path} is compressed with {name}: unpack it with `{tool}` first"
                )
        if position == 0 and "checksum" in str(error):
            return PackedFilesError(f"{self._path} is no tar archive, or its first header is damaged")
        return self._error(position, f"the header is damaged or cannot be used: {error}")

    def _error(self, position: int, text: str) -> PackedFilesError:
        return PackedFilesError(f"{self._path}, byte {position}: {text}")


def _refused(kind: bytes, name: str) -> str:
    if kind == b"S":
        return f"the file {name!r} is sparse: make the archive without `tar --sparse`"
    if kind == b"M":
        return f"the file {name!r} goes on from another volume: join the volumes first"
    return f"the entry {name!r} has the unknown type {kind!r}"


def _text(name: bytes) -> str:
    """Return a name as text, without the prefix `./` that `tar -C FOLDER .` writes."""
    text = name.decode(errors="surrogateescape")
    while text.startswith("./"):
        text = text[2:].lstrip("/")
    return text
