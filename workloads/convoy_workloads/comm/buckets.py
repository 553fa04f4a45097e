"""Many small tensors as a few flat buckets, so that one collective carries each bucket."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from convoy_workloads.comm.collectives import Collectives


class Buckets:
    """The places of tensors in buckets. All ranks that use the same shapes get the same buckets."""

    def __init__(
        self, shapes: Sequence[Sequence[int]], max_bytes: int = 4 << 20, dtype: torch.dtype = torch.float32
    ) -> None:
        """`max_bytes`: size of a bucket; a tensor that is larger has a bucket of its own."""
        if max_bytes < 1:
            raise ValueError(f"max_bytes: {max_bytes} is not above 0")
        self._shapes = [tuple(shape) for shape in shapes]
        self._dtype = dtype
        self._places: list[tuple[int, int]] = []
        """Bucket and first element of each tensor."""
        self._sizes: list[int] = []
        """Number of elements of each bucket."""
        limit = max(1, max_bytes // dtype.itemsize)
        for shape in self._shapes:
            count = math.prod(shape)
            if not self._sizes or (self._sizes[-1] and self._sizes[-1] + count > limit):
                self._sizes.append(0)
            self._places.append((len(self._sizes) - 1, self._sizes[-1]))
            self._sizes[-1] += count

    @property
    def count(self) -> int:
        """Return the number of buckets."""
        return len(self._sizes)

    @property
    def bytes(self) -> int:
        """Return the bytes of all buckets."""
        return sum(self._sizes) * self._dtype.itemsize

    def zeros(self) -> list[Tensor]:
        """Return buckets filled with zeros."""
        return [torch.zeros(size, dtype=self._dtype) for size in self._sizes]

    def views(self, buckets: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield each tensor as a view of its bucket."""
        for shape, (bucket, start) in zip(self._shapes, self._places, strict=True):
            yield buckets[bucket][start : start + math.prod(shape)].view(shape)

    def all_reduce(self, buckets: Sequence[Tensor], collectives: Collectives) -> None:
        """Replace the buckets by their sums over all ranks."""
        for one in buckets:
            collectives.all_reduce(one)
