"""Unions of intervals of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def union(intervals: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield the parts of the union of intervals, from the first to the last. No part is empty."""
    begun = reached = float("-inf")
    for start, end in sorted(intervals):
        if start > reached:
            if reached > begun:
                yield begun, reached
            begun = start
        reached = max(reached, end)
    if reached > begun:
        yield begun, reached


def union_length(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    return sum((end - start for start, end in union(intervals)), 0.0)
