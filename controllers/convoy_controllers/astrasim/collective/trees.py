"""Two binary trees over the same ranks.

A tree has a root with one child, below which the tree is complete. The ranks have the in-order numbers, so
the root is the first rank in one tree and the last rank in the other. Only a power of two of ranks has a
place; with another number of ranks, the last ones have none.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TreePlace:
    """The neighbours of a rank in a tree."""

    parent: int | None
    children: tuple[int, ...]
    """Left child, then right child."""


def places(ranks: int) -> int:
    """Return the number of ranks that have a place in a tree over `ranks` ranks."""
    return 1 << (ranks.bit_length() - 1)


def tree_place(position: int, ranks: int, root_last: bool) -> TreePlace | None:
    """Return the neighbours of the rank at an in-order position, as positions; None if it has no place.

    The complete part has the in-order numbers 1, 2, ... A number's lowest set bit is the height of its node,
    so parent and children follow from the bits.
    """
    size = places(ranks)
    if position >= size:
        return None
    shift = 1 if root_last else 0
    number = position + shift
    top = size // 2
    root = size - shift if root_last else 0
    if position == root or size == 1:
        return TreePlace(None, (top - shift,) if size > 1 else ())
    height = number & -number
    half = height // 2
    children = (number - half - shift, number + half - shift) if half else ()
    if number == top:
        return TreePlace(root, children)
    # The parent is the neighbour at this height whose own lowest set bit is twice as high.
    above = number - height if (number - height) & (2 * height) else number + height
    return TreePlace(above - shift, children)
