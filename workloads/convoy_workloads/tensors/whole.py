"""Assembles whole tensors from the shards of a generation, one tensor at a time.

The module needs torch. If one shard contains all of a tensor, the tensor is not copied. Other tensors are
assembled in memory.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable
from pathlib import Path

import torch

from convoy_workloads.runtime.tiers import shard
from convoy_workloads.runtime.tiers.shard import Box, Part, Shard, ShardError

__all__ = ["ShardError", "Whole", "item_size", "open_shard"]


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


def _check(name: str, parts: list[Part]) -> None:
    first = parts[0]
    if any((part.shape, part.dtype) != (first.shape, first.dtype) for part in parts):
        raise ShardError(f"tensor {name} has several shapes or types")
    if any(part.length != math.prod(part.sizes) * item_size(part) for part in parts):
        raise ShardError(f"tensor {name}: the number of bytes does not match its shape")
    if sum(math.prod(part.sizes) for part in parts) != math.prod(first.shape):
        raise ShardError(f"tensor {name} is incomplete")
    for part in parts:
        if len(part.offsets) != len(part.shape) or len(part.sizes) != len(part.shape):
            raise ShardError(f"tensor {name} has a part with another number of dimensions")
        if any(at + size > most for at, size, most in zip(*part.box, part.shape, strict=True)):
            raise ShardError(f"tensor {name} has a part that lies outside it")


def item_size(part: Part) -> int:
    """Return the bytes of one element. Raises ShardError if this torch does not support the type."""
    dtype = getattr(torch, part.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise ShardError(
            f"tensor {part.name} has type {part.dtype}, which this version of torch does not support"
        )
    return dtype.itemsize
