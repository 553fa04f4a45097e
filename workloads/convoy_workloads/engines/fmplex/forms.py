"""The form of a backbone's input: the check of a row, the length to which it is padded, and the tensor of a
batch. No weights are needed for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from convoy_workloads.engines.fmplex.params import STEP
from convoy_workloads.serving.protocol import TensorSpec

CHANNELS = 3
Row = Any
"""A text (str), or an image (array of float32)."""


class Form(Protocol):
    """The form of a backbone's input."""

    @property
    def input(self) -> TensorSpec:
        """Return the input tensor of the tasks."""
        ...

    def length_of(self, row: Row) -> int:
        """Return the length to which a row is padded. Rows of a batch have the same length. Raises
        ValueError, with the reason, if the backbone cannot compute the row.
        """
        ...

    def pack(self, rows: list[Row], length: int) -> Tensor:
        """Return the rows of a batch as one tensor."""
        ...

    def empty(self, rows: int, length: int) -> Tensor:
        """Return a tensor with the shape and type of a batch."""
        ...

    def samples(self, count: int, length: int) -> list[Row]:
        """Return different rows with this length, for tests."""
        ...

    @property
    def lengths(self) -> tuple[int, ...]:
        """Return all lengths, in ascending order."""
        ...


@dataclass(frozen=True)
class TextForm:
    """Texts of up to `context` bytes."""

    context: int

    @property
    def input(self) -> TensorSpec:
        """Return the input tensor: one text a row."""
        return TensorSpec("text", "BYTES", (-1,))

    @property
    def lengths(self) -> tuple[int, ...]:
        """Return the powers of two times `STEP` below the context, and the context."""
        found = [STEP]
        while found[-1] * 2 < self.context:
            found.append(found[-1] * 2)
        return (*found, self.context) if found[-1] < self.context else tuple(found)

    def length_of(self, row: Row) -> int:
        """Return the smallest length that holds the text's bytes."""
        size = len(_data(row))
        if not 1 <= size <= self.context:
            raise ValueError(f"has {size} bytes of UTF-8; the backbone accepts 1 to {self.context}")
        return next(length for length in self.lengths if size <= length)

    def pack(self, rows: list[Row], length: int) -> Tensor:
        """Return the bytes of each text and, in the last column, their number."""
        found = np.zeros((len(rows), length + 1), dtype=np.int64)
        for number, row in enumerate(rows):
            data = _data(row)
            found[number, : len(data)] = np.frombuffer(data, dtype=np.uint8)
            found[number, -1] = len(data)
        return torch.from_numpy(found)

    def empty(self, rows: int, length: int) -> Tensor:
        """Return a tensor for the bytes and their number."""
        return torch.empty((rows, length + 1), dtype=torch.int64)

    def samples(self, count: int, length: int) -> list[Row]:
        """Return texts that differ in their letters and their number of bytes."""
        return [chr(97 + number % 26) * (length - number % STEP) for number in range(count)]


@dataclass(frozen=True)
class ImageForm:
    """Images with three channels."""

    size: int
    patch: int

    @property
    def input(self) -> TensorSpec:
        """Return the input tensor: one image a row."""
        return TensorSpec("image", "FP32", (-1, CHANNELS, self.size, self.size))

    @property
    def lengths(self) -> tuple[int, ...]:
        """Return the number of patches."""
        return ((self.size // self.patch) ** 2,)

    def length_of(self, row: Row) -> int:
        """Return the number of patches."""
        if not np.isfinite(row).all():
            raise ValueError("has values that are not finite")
        return self.lengths[0]

    def pack(self, rows: list[Row], length: int) -> Tensor:
        """Return the images."""
        return torch.from_numpy(np.stack(rows).astype(np.float32, copy=False))

    def empty(self, rows: int, length: int) -> Tensor:
        """Return a tensor for images."""
        return torch.empty((rows, CHANNELS, self.size, self.size))

    def samples(self, count: int, length: int) -> list[Row]:
        """Return random images."""
        shape = (count, CHANNELS, self.size, self.size)
        return list(np.random.default_rng(0).random(shape, dtype=np.float32))


def _data(row: Row) -> bytes:
    return str(row).encode("utf-8", "replace")
