"""Assembles whole tensors from the shards of a generation and writes them to files, one tensor at a time.

The module needs torch. If one shard contains all of a tensor, the tensor is not copied. Other tensors are
assembled in memory.
"""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import MetadataIndex

from convoy_workloads.runtime.tiers import shard, values
from convoy_workloads.runtime.tiers.shard import Box, Part, Shard, ShardError

__all__ = ["ShardError", "Whole", "open_shard", "write_dcp", "write_safetensors"]

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
_ALIGN = 8
"""Alignment in bytes of the data in a safetensors file."""


class Whole:
    """All tensors and other values of one generation."""

    def __init__(self, shards: Iterable[Shard]) -> None:
        """Raises ShardError if a tensor is incomplete, or if the shards disagree about its shape or type."""
        self.values: dict[str, str] = {}
        """Values that are not tensors, encoded as text by the module `values`, by name."""
        self._boxes: dict[str, dict[Box, tuple[Shard, Part]]] = {}
        for one in shards:
            self.values.update(one.values)
            for part in one.parts:
                self._boxes.setdefault(part.name, {})[part.box] = (one, part)
        for name, boxes in self._boxes.items():
            _check(name, [part for _, part in boxes.values()])

    @property
    def names(self) -> list[str]:
        """Return the names of the tensors in alphabetical order."""
        return sorted(self._boxes)

    def part(self, name: str) -> Part:
        """Return one part of a tensor. The part's `shape` and `dtype` are the same for all parts of the
        tensor.
        """
        return next(iter(self._boxes[name].values()))[1]

    def tensor(self, name: str) -> torch.Tensor:
        """Return a whole tensor. It is a view of a shard's memory if one shard contains all of it."""
        parts = list(self._boxes[name].values())
        one, first = parts[0]
        if first.sizes == first.shape:
            return one.tensor(first)
        found = torch.empty(first.shape, dtype=getattr(torch, first.dtype))
        for source, part in parts:
            target = found
            for dimension, (start, size) in enumerate(zip(*part.box, strict=True)):
                target = target.narrow(dimension, start, size)
            target.copy_(source.tensor(part))
        return found


def open_shard(path: Path) -> Shard:
    """Return the shard in a file. Raises ShardError if the file is not a shard, and OSError if the file
    cannot be read.
    """
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise ShardError(f"{path.name} is empty")
        # torch requires writable memory. Writes to this private mapping would not reach the file.
        return shard.read(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)))


def write_safetensors(path: Path, whole: Whole, metadata: Mapping[str, str]) -> None:
    """Write a safetensors file (github.com/huggingface/safetensors) with all tensors.

    Values that are not tensors are stored as one JSON object in the metadata `values`. Raises ShardError if
    a tensor has a type that safetensors does not support.
    """
    names = sorted(whole.names, key=lambda name: (-_item_size(whole.part(name)), name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **metadata, "values": _values(whole)}}
    at = 0
    for name in names:
        part = whole.part(name)
        if part.dtype not in SAFE_NAMES:
            raise ShardError(
                f"tensor {name} has type {part.dtype}, which safetensors does not support: use --format dcp"
            )
        size = math.prod(part.shape) * _item_size(part)
        header[name] = {
            "dtype": SAFE_NAMES[part.dtype],
            "shape": list(part.shape),
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            _write(file, whole.tensor(name))


def write_dcp(folder: Path, whole: Whole) -> None:
    """Write a checkpoint of torch.distributed.checkpoint. Tensors and values keep the names that they were
    saved with.

    Each tensor gets its own file, because torch's writer keeps a whole file in memory.
    """
    state: dict[str, Any] = {name: values.loads(text) for name, text in whole.values.items()}
    for name in whole.names:
        part = whole.part(name)
        state[name] = torch.empty((), dtype=getattr(torch, part.dtype)).expand(part.shape)
    with warnings.catch_warnings():
        # torch warns that only one process saves, which is intended here.
        warnings.simplefilter("ignore")
        state_dict_saver.save(
            state,
            storage_writer=FileSystemWriter(folder, single_file_per_rank=False),
            planner=_Planner(whole),
            no_dist=True,
        )


class _Planner(DefaultSavePlanner):
    """Assembles each tensor only when torch writes it. The state dict has only a placeholder with the
    tensor's shape and type.
    """

    def __init__(self, whole: Whole) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._whole = whole
        self._names = frozenset(whole.names)

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Return the assembled tensor, or the value, that `index` names."""
        return self._whole.tensor(index.fqn) if index.fqn in self._names else super().lookup_object(index)


def _check(name: str, parts: list[Part]) -> None:
    first = parts[0]
    if any((part.shape, part.dtype) != (first.shape, first.dtype) for part in parts):
        raise ShardError(f"tensor {name} has several shapes or types")
    if any(part.length != math.prod(part.sizes) * _item_size(part) for part in parts):
        raise ShardError(f"tensor {name}: the number of bytes does not match its shape")
    if sum(math.prod(part.sizes) for part in parts) != math.prod(first.shape):
        raise ShardError(f"tensor {name} is incomplete")
    for part in parts:
        if len(part.offsets) != len(part.shape) or len(part.sizes) != len(part.shape):
            raise ShardError(f"tensor {name} has a part with another number of dimensions")
        if any(at + size > most for at, size, most in zip(*part.box, part.shape, strict=True)):
            raise ShardError(f"tensor {name} has a part that lies outside it")


def _item_size(part: Part) -> int:
    dtype = getattr(torch, part.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise ShardError(
            f"tensor {part.name} has type {part.dtype}, which this version of torch does not support"
        )
    return dtype.itemsize


def _values(whole: Whole) -> str:
    return json.dumps({name: json.loads(text) for name, text in sorted(whole.values.items())})


def _write(file: BinaryIO, tensor: torch.Tensor) -> None:
    tensor = tensor.contiguous()
    if tensor.nbytes:
        file.write((ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr()))
