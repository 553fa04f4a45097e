"""The file of a segment: named arrays with checksums, mapped into memory.

0       magic
8       length of the header, little endian
16      CRC-32 of the header
20      zeros
64      header, JSON: values, and for each array dtype, shape, offset and CRC-32
..      arrays, each at a multiple of 64 bytes
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from convoy_workloads.engines.aperon.errors import CorruptFile
from convoy_workloads.engines.aperon.storage import Storage
from convoy_workloads.kernels.hntl_arrays import rounded_up

Array = npt.NDArray[Any]
MAGIC = b"HNTLSEG\x01"
_HEAD = struct.Struct("<8sQI")
_ALIGNMENT = 64
_LARGEST_HEADER = 2**26


def write_arrays(
    storage: Storage, path: Path, values: Mapping[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Write a file of arrays atomically."""
    placed, at = {}, 0
    little = {name: _little_endian(array) for name, array in arrays.items()}
    for name, array in little.items():
        placed[name] = {
            "dtype": array.dtype.str,
            "shape": array.shape,
            "offset": at,
            "crc32": zlib.crc32(_bytes(array)),
        }
        at = rounded_up(at + array.nbytes, _ALIGNMENT)
    header = json.dumps({"values": dict(values), "arrays": placed, "bytes": at}).encode()

    def chunks() -> Iterator[bytes | memoryview]:
        yield _HEAD.pack(MAGIC, len(header), zlib.crc32(header)).ljust(_ALIGNMENT, b"\0")
        yield header.ljust(rounded_up(len(header), _ALIGNMENT), b"\0")
        for array in little.values():
            yield _bytes(array)
            yield b"\0" * (rounded_up(array.nbytes, _ALIGNMENT) - array.nbytes)

    storage.write(path, chunks())


def _little_endian(array: Array) -> Array:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the values and the arrays of a file, mapped read-only. Raises CorruptFile if the file is missing
    or damaged.
    """
    try:
        mapped = np.memmap(path, np.uint8, mode="r")
    except FileNotFoundError as error:
        raise CorruptFile(path, "missing") from error
    except (OSError, ValueError) as error:
        raise CorruptFile(path, f"not readable: {error}") from error
    header = _header(path, mapped)
    start = rounded_up(_ALIGNMENT + int(_HEAD.unpack(mapped[: _HEAD.size].tobytes())[1]), _ALIGNMENT)
    if len(mapped) != start + header["bytes"]:
        raise CorruptFile(path, f"{len(mapped)} bytes instead of {start + header['bytes']}")
    found: dict[str, Array] = {}
    for name, placed in header["arrays"].items():
        dtype = np.dtype(placed["dtype"])
        size = int(np.prod(placed["shape"], dtype=np.int64)) * dtype.itemsize
        first = start + placed["offset"]
        data = np.asarray(mapped[first : first + size])
        if zlib.crc32(data.data) != placed["crc32"]:
            raise CorruptFile(path, f"array {name!r} has another checksum than when it was written")
        found[name] = data.view(dtype).reshape(placed["shape"])
    return header["values"], found


def _header(path: Path, mapped: Array) -> dict[str, Any]:
    if len(mapped) < _ALIGNMENT:
        raise CorruptFile(path, f"truncated: {len(mapped)} bytes")
    magic, length, checksum = _HEAD.unpack(mapped[: _HEAD.size].tobytes())
    if magic != MAGIC:
        raise CorruptFile(path, "not a segment of an index, or of another version")
    if length > _LARGEST_HEADER or _ALIGNMENT + length > len(mapped):
        raise CorruptFile(path, "truncated in its header")
    data = mapped[_ALIGNMENT : _ALIGNMENT + length].tobytes()
    if zlib.crc32(data) != checksum:
        raise CorruptFile(path, "the header has another checksum than when it was written")
    found: dict[str, Any] = json.loads(data)
    return found
