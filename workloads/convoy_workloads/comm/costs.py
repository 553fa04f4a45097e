"""Times and bytes of operations on links, by the algorithms of the usual libraries.

Collectives run over a ring in the order of the ranks. A step of the ring ends when its slowest link has
delivered, so a step takes

    max over the edges of (latency + bytes / rate)

| operation | steps | bytes of a step on each edge |
|---|---|---|
| all_reduce | 2 (W - 1) | size / W |
| reduce_scatter, all_gather | W - 1 | size of one rank's part |
| broadcast, reduce | W - 1, pipelined: the slowest edge once, and the latency of each | size |
| all_to_all | W - 1 exchanges between pairs | size of one part |
| gather, scatter | between the root and each rank, at the same time | size of one part |

All ranks compute the same time from the same sizes. So they need not tell each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from convoy_workloads.comm.links import Links

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Cost:
    """The time of one operation, and the bytes that it sends over each link."""

    seconds: float = 0.0
    sent: dict[Pair, int] = field(default_factory=dict)


def all_reduce(links: Links, ranks: Sequence[int], size: int) -> Cost:
    """Return the cost to reduce `size` bytes of each rank, and to give all ranks the result."""
    return _ring(links, ranks, 2 * (len(ranks) - 1), -(-size // len(ranks)))


def all_gather(links: Links, ranks: Sequence[int], part: int) -> Cost:
    """Return the cost to give all ranks the `part` bytes of each rank. To reduce and scatter parts of this
    size costs the same.
    """
    return _ring(links, ranks, len(ranks) - 1, part)


def broadcast(links: Links, ranks: Sequence[int], root: int, size: int) -> Cost:
    """Return the cost to give all ranks `size` bytes of one. To reduce them to one rank costs the same."""
    first = ranks.index(root)
    order = [*ranks[first:], *ranks[:first]]
    edges = list(pairwise(order))
    slowest = max((size / links.between(*edge).bytes_per_second for edge in edges), default=0.0)
    latency = sum(links.between(*edge).latency_seconds for edge in edges)
    return Cost(slowest + latency, dict.fromkeys(edges, size))


def all_to_all(links: Links, ranks: Sequence[int], part: int) -> Cost:
    """Return the cost with which each rank sends `part` bytes to each other rank."""
    seconds = 0.0
    for distance in range(1, len(ranks)):
        edges = [(rank, ranks[(place + distance) % len(ranks)]) for place, rank in enumerate(ranks)]
        seconds += _slowest(links, edges, part)
    return Cost(seconds, {(one, other): part for one in ranks for other in ranks if one != other})


def scatter(links: Links, ranks: Sequence[int], root: int, part: int) -> Cost:
    """Return the cost with which one rank sends `part` bytes to each other rank."""
    edges = [(root, rank) for rank in ranks if rank != root]
    return Cost(_slowest(links, edges, part), dict.fromkeys(edges, part))


def gather(links: Links, ranks: Sequence[int], root: int, part: int) -> Cost:
    """Return the cost with which each rank sends `part` bytes to one."""
    edges = [(rank, root) for rank in ranks if rank != root]
    return Cost(_slowest(links, edges, part), dict.fromkeys(edges, part))


def point_to_point(links: Links, sender: int, receiver: int, size: int) -> Cost:
    """Return the cost to send `size` bytes from one rank to another."""
    return Cost(links.between(sender, receiver).seconds(size), {(sender, receiver): size})


def _ring(links: Links, ranks: Sequence[int], steps: int, size: int) -> Cost:
    if len(ranks) < 2:
        return Cost()
    edges = [(rank, ranks[(place + 1) % len(ranks)]) for place, rank in enumerate(ranks)]
    return Cost(steps * _slowest(links, edges, size), dict.fromkeys(edges, steps * size))


def _slowest(links: Links, edges: Iterable[Pair], size: int) -> float:
    return max((links.between(*edge).seconds(size) for edge in edges), default=0.0)
