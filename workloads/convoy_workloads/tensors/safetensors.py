"""Reads and writes files of the format safetensors (github.com/huggingface/safetensors)."""

from __future__ import annotations

import ctypes
import json
import math
import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from convoy_workloads.tensors.whole import ShardError, Whole, item_size

SAFE_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
"""Names that safetensors uses for torch's types, by torch's name."""
_PREFIX = 8
"""Number of bytes before the header. They hold the header's length, little endian."""
_ALIGN = 8
"""Alignment in bytes of the data in a safetensors file."""


_TORCH_NAMES = {safe: name for name, safe in SAFE_NAMES.items()}
MAX_HEADER = 100_000_000
"""Maximum length of a header in bytes, as in the library safetensors."""


@dataclass(frozen=True)
class Entry:
    """A tensor of a safetensors file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    """Offset of the tensor's first byte in the file."""
    length: int
    """Number of bytes."""


class SafetensorsFile:
    """A safetensors file that is mapped into memory. Its tensors are views of that memory."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises ShardError if it is no valid safetensors file, and OSError if it cannot be
        read.
        """
        self.path = path
        self.metadata: dict[str, str] = {}
        self.entries: dict[str, Entry] = {}
        """The tensors of the file by name."""
        with path.open("rb") as file:
            if path.stat().st_size < _PREFIX:
                raise ShardError(f"{path} is shorter than the head of a safetensors file")
            # torch requires writable memory. Writes to this private mapping would not reach the file.
            self._bytes = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        try:
            self._read_header()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ShardError(f"{path} is no safetensors file: {error}") from error

    def tensor(self, name: str) -> torch.Tensor:
        """Return a tensor. Raises KeyError if the file has no tensor of this name."""
        one = self.entries[name]
        if not one.length:
            return torch.empty(one.shape, dtype=one.dtype)
        count = one.length // one.dtype.itemsize
        return torch.frombuffer(self._bytes, dtype=one.dtype, count=count, offset=one.start).view(one.shape)

    def _read_header(self) -> None:
        length = int.from_bytes(self._bytes[:_PREFIX], "little")
        if length > min(MAX_HEADER, len(self._bytes) - _PREFIX):
            raise ValueError(f"its header has {length} bytes")
        header = json.loads(bytes(self._bytes[_PREFIX : _PREFIX + length]))
        self.metadata = {str(name): str(value) for name, value in header.pop("__metadata__", {}).items()}
        data = _PREFIX + length
        for name, one in header.items():
            dtype = getattr(torch, _TORCH_NAMES[one["dtype"]])
            shape = tuple(int(size) for size in one["shape"])
            start, end = (data + int(at) for at in one["data_offsets"])
            if (
                end > len(self._bytes)
                or end - start != math.prod(shape) * dtype.itemsize
                or min(shape, default=0) < 0
            ):
                raise ValueError(
                    f"tensor {name} has {end - start} bytes at {start}, which does not fit {shape}"
                )
            self.entries[name] = Entry(dtype, shape, start, end - start)


def write_safetensors(path: Path, whole: Whole, metadata: Mapping[str, str]) -> None:
    """Write a safetensors file with all tensors.

    Values that are not tensors are stored as one JSON object in the metadata `values`. Raises ShardError if
    a tensor has a type that safetensors does not support.
    """
    parts = {name: whole.part(name) for name in whole.names}
    facts = {name: (one.dtype, tuple(one.shape), item_size(one)) for name, one in parts.items()}
    _write_file(path, facts, whole.tensor, {**metadata, "values": _values(whole)})


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file with these tensors. Raises ShardError if a tensor has a type that safetensors
    does not support.
    """
    facts = {
        name: (str(one.dtype).removeprefix("torch."), tuple(one.shape), one.dtype.itemsize)
        for name, one in tensors.items()
    }
    _write_file(path, facts, tensors.__getitem__, metadata)


def _write_file(
    path: Path,
    facts: Mapping[str, tuple[str, tuple[int, ...], int]],
    tensor: Callable[[str], torch.Tensor],
    metadata: Mapping[str, str],
) -> None:
    """Write a safetensors file. `facts`: torch's name of the type, the shape, and the bytes of an element, by
    name of the tensor.
    """
    names = sorted(facts, key=lambda name: (-facts[name][2], name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **metadata}}
    at = 0
    for name in names:
        dtype, shape, item = facts[name]
        if dtype not in SAFE_NAMES:
            raise ShardError(
                f"tensor {name} has type {dtype}, which safetensors does not support: use --format dcp"
            )
        size = math.prod(shape) * item
        header[name] = {
            "dtype": SAFE_NAMES[dtype],
            "shape": list(shape),
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            _write(file, tensor(name))


def _values(whole: Whole) -> str:
    return json.dumps({name: json.loads(text) for name, text in sorted(whole.values.items())})


def _write(file: BinaryIO, tensor: torch.Tensor) -> None:
    tensor = tensor.contiguous()
    if tensor.nbytes:
        file.write((ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr()))
