"""Files of packed weights: a header of 4,096 bytes and the tiles, which are mapped read-only into memory.

The header starts with MAGIC; then follows JSON with layout, scheme, sizes, byte order and the SHA-256 digest
of the tiles, and a second digest of the header itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from convoy_workloads.kernels.errors import InvalidInput, KernelError
from convoy_workloads.kernels.packing import LAYOUT, PackedWeights, packed_size

MAGIC = b"CONVOYPW"
HEADER_BYTES = 4096
_READ_BYTES = 1 << 20
_FIELDS: Mapping[str, type] = {
    "layout": str,
    "byte_order": str,
    "scheme": str,
    "outputs": int,
    "inputs": int,
    "group_size": int,
    "bytes": int,
    "digest": str,
}


class PackedFileError(KernelError):
    """A file of packed weights cannot be used. The message says why, and what to do."""


def write_packed(path: Path, packed: PackedWeights) -> str:
    """Write a file of packed weights. A file at that path is replaced at once. Return the tiles' digest."""
    digest = hashlib.sha256(packed.tiles.data).hexdigest()
    fields = {
        "layout": LAYOUT,
        "byte_order": sys.byteorder,
        "scheme": packed.scheme,
        "outputs": packed.outputs,
        "inputs": packed.inputs,
        "group_size": packed.group_size,
        "bytes": packed.tiles.nbytes,
        "digest": digest,
    }
    write_file(path, header(fields), packed.tiles.data)
    return digest


def header(fields: Mapping[str, Any]) -> bytes:
    """Return the header with these fields."""
    text = json.dumps(fields, sort_keys=True).encode()
    found = MAGIC + hashlib.sha256(text).hexdigest().encode() + b"\n" + text + b"\n"
    return found.ljust(HEADER_BYTES, b"\0")


def write_file(path: Path, start: bytes, tiles: bytes | memoryview) -> None:
    """Write a header and tiles to a temporary file, flush it to the disk, and rename it to `path`."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as stream:
        made = Path(stream.name)
        try:
            stream.write(start)
            stream.write(tiles)
            stream.flush()
            os.fsync(stream.fileno())
            made.chmod(0o644)
            made.replace(path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                made.unlink()
            raise


def open_packed(path: Path, *, verify: bool = True, expected: str = "") -> PackedWeights:
    """Map a file of packed weights read-only. `verify` reads the whole file once and compares its digest.
    `expected`: the digest that the tiles must have; empty for any.

    Raises PackedFileError for a file that is missing, truncated, damaged, with other weights, or made for
    another layout or byte order.
    """
    try:
        with path.open("rb") as stream:
            fields = _checked(path, stream)
            if expected not in ("", fields["digest"]):
                raise _unusable(path, "it has other weights than those that belong here")
            if verify and _digest(stream) != fields["digest"]:
                raise _unusable(path, "its tiles do not have the digest in its header")
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise PackedFileError(f"cannot read {path}: {error.strerror}") from error
    tiles = np.frombuffer(mapped, np.uint8, offset=HEADER_BYTES)
    return PackedWeights(fields["scheme"], fields["outputs"], fields["inputs"], fields["group_size"], tiles)


def _checked(path: Path, stream: BinaryIO) -> dict[str, Any]:
    """Return the header's fields. Leave the stream at the first tile."""
    start = stream.read(HEADER_BYTES)
    if start[: len(MAGIC)] != MAGIC:
        raise _unusable(path, "it is no file of packed weights")
    if len(start) < HEADER_BYTES:
        raise _unusable(path, f"it ends after {len(start)} of the header's {HEADER_BYTES} bytes")
    digest, _, rest = start[len(MAGIC) :].partition(b"\n")
    text = rest.partition(b"\n")[0]
    if hashlib.sha256(text).hexdigest().encode() != digest:
        raise _unusable(path, "its header is damaged")
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise _unusable(path, "its header is no JSON object")
    for name, kind in _FIELDS.items():
        if type(fields.get(name)) is not kind:
            raise _unusable(path, f"its header has no valid field {name!r}")
    if fields["layout"] != LAYOUT:
        raise _unusable(path, f"it has layout {fields['layout']!r}; these kernels read {LAYOUT!r}")
    if fields["byte_order"] != sys.byteorder:
        raise _unusable(path, f"its byte order is {fields['byte_order']}; this machine's is {sys.byteorder}")
    try:
        size = packed_size(fields["scheme"], fields["outputs"], fields["inputs"], fields["group_size"])
    except InvalidInput as error:
        raise _unusable(path, f"its header's {error}") from error
    there = os.fstat(stream.fileno()).st_size - HEADER_BYTES
    if fields["bytes"] != size or there != size:
        raise _unusable(path, f"it has {there} bytes of tiles; its sizes need {size}")
    return fields


def _digest(stream: BinaryIO) -> str:
    # Reads, and does not map: mapped pages would count as this process's memory.
    total = hashlib.sha256()
    while part := stream.read(_READ_BYTES):
        total.update(part)
    return total.hexdigest()


def _unusable(path: Path, reason: str) -> PackedFileError:
    return PackedFileError(f"{path}: {reason}. Pack the weights again")
