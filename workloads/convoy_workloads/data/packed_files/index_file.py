"""Keeps the index of an archive in a file beside it, `train.tar.index` for `train.tar`.

The file is a cache. It counts only for an archive of the size and modification time that it records, and a
missing, damaged or outdated file is ignored: the archive is then scanned again.

The first line is the CRC-32 of all that follows, the second line is JSON. The offsets, the sizes (8 bytes
each, little endian) and the names (separated by zero bytes) come after them.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
import zlib
from array import array
from pathlib import Path
from typing import Any

from convoy_workloads.data.packed_files.tar_index import Stamp, TarIndex

VERSION = 1
_WORD = 8


def index_path(archive: Path) -> Path:
    """Return the path of the index of an archive."""
    return archive.with_name(f"{archive.name}.index")


def save_index(archive: Path, index: TarIndex, stamp: Stamp) -> Path:
    """Write the index of an archive atomically. Return its path. Raises OSError."""
    head = {
        "version": VERSION,
        "size": stamp.size,
        "mtime_ns": stamp.mtime_ns,
        "files": len(index.names),
        "skipped": dict(index.skipped),
        "replaced": index.replaced,
    }
    names = "\0".join(index.names).encode(errors="surrogateescape")
    contents = json.dumps(head).encode() + b"\n" + _bytes(index.offsets) + _bytes(index.sizes) + names
    path = index_path(archive)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        partial.write_bytes(b"%d\n%b" % (zlib.crc32(contents), contents))
        partial.replace(path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    return path


def load_index(archive: Path, stamp: Stamp) -> TarIndex | None:
    """Return the saved index of an archive; None unless it is whole and has the archive's stamp."""
    try:
        checksum, _, contents = index_path(archive).read_bytes().partition(b"\n")
    except OSError:
        return None
    if checksum != b"%d" % zlib.crc32(contents):
        return None
    line, _, body = contents.partition(b"\n")
    head = json.loads(line)
    if head["version"] != VERSION or Stamp(head["size"], head["mtime_ns"]) != stamp:
        return None
    return _index(head, body)


def _index(head: dict[str, Any], body: bytes) -> TarIndex:
    count = head["files"]
    length = count * _WORD
    names = body[2 * length :].decode(errors="surrogateescape").split("\0") if count else []
    return TarIndex(
        names, _array(body[:length]), _array(body[length : 2 * length]), head["skipped"], head["replaced"]
    )


def _bytes(numbers: array[int]) -> bytes:
    return _little(numbers).tobytes()


def _array(data: bytes) -> array[int]:
    return _little(array("Q", data))


def _little(numbers: array[int]) -> array[int]:
    """Return the numbers in the byte order of the file."""
    if sys.byteorder == "little":
        return numbers
    swapped = array("Q", numbers)
    swapped.byteswap()
    return swapped
