"""The interface of a fabric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Link(NamedTuple):
    """A directed link between two nodes. Nodes are numbers: first the ranks, then the switches."""

    start: int
    end: int
    bandwidth: float
    """GB/s, with GB = 2^30 bytes."""
    latency: float
    """ns."""


def duplex(one: int, other: int, bandwidth: float, latency: float) -> list[Link]:
    """Return a link in each direction between two nodes."""
    return [Link(one, other, bandwidth, latency), Link(other, one, bandwidth, latency)]


class Fabric(Protocol):
    """Directed links, and a route between any two ranks."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""

    def route(self, source: int, target: int) -> Sequence[Link]:
        """Return the links from a rank to another one, in order. The same ranks have the same route."""

    def name(self, node: int) -> str:
        """Return the name of a node for people."""
