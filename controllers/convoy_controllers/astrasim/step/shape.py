"""The shape of a data-parallel step: when gradients are ready, and how many bytes are reduced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

MOST_REDUCTIONS = 4096


@dataclass(frozen=True, slots=True)
class Reduction:
    """The all-reduce of a bucket of gradients."""

    seconds: float
    """Seconds of computation that yield the bucket's gradients, after those of the bucket before."""
    bytes: int


@dataclass(frozen=True, slots=True)
class StepShape:
    """The computation and the all-reduces of a step. All ranks have the same."""

    reductions: tuple[Reduction, ...]
    head_seconds: float = 0.0
    """Seconds of computation before the first gradient, such as the forward pass."""
    tail_seconds: float = 0.0
    """Seconds of computation after all all-reduces, such as the optimizer."""
    overlaps: bool = True
    """True if computation goes on during an all-reduce, as with DistributedDataParallel."""

    @property
    def bytes(self) -> int:
        """Return the bytes of all gradients."""
        return sum(one.bytes for one in self.reductions)

    @property
    def compute_seconds(self) -> float:
        """Return the seconds of computation of the whole step."""
        return self.head_seconds + sum(one.seconds for one in self.reductions) + self.tail_seconds


def with_buckets(shape: StepShape, bucket_bytes: int) -> StepShape:
    """Return the step with other buckets. In each of its own buckets, gradients come at a constant rate."""
    ends = list(accumulate(one.seconds for one in shape.reductions))
    sizes = list(accumulate(one.bytes for one in shape.reductions))
    points = [(0, 0.0), *zip(sizes, ends, strict=True)]
    reductions, before, reached = [], 0.0, 0
    for size in _parts(shape.bytes, bucket_bytes):
        reached += size
        seconds = _at(points, reached)
        reductions.append(Reduction(seconds - before, size))
        before = seconds
    return replace(shape, reductions=tuple(reductions))


def reductions_of(gradient_bytes: int, bucket_bytes: int) -> int:
    """Return the number of buckets."""
    return max(1, -(-gradient_bytes // bucket_bytes))


def _parts(total: int, size: int) -> Iterator[int]:
    """Yield the sizes of the buckets. Only the last one may be smaller."""
    whole, rest = divmod(total, size)
    yield from [size] * whole
    if rest or not whole:
        yield rest


def _at(points: list[tuple[int, float]], reached: int) -> float:
    """Return the seconds at which `reached` bytes are ready."""
    for (low, start), (high, end) in pairwise(points):
        if reached <= high:
            return start + (end - start) * (reached - low) / (high - low)
    return points[-1][1]
