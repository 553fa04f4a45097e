"""Models of the time that a communication takes, for replays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from convoy_workloads.traces.trace import Collective, collective_of, group_of, size_of
from convoy_workloads.traces.wire.chakra_pb2 import Node


@dataclass(frozen=True, slots=True)
class Scaled:
    """Recorded durations, multiplied by a factor."""

    factor: float

    def __call__(self, node: Node) -> float:
        """Return the microseconds of a communication."""
        return node.duration_micros * self.factor


def ring_cost(kind: Collective | None, size: int, ranks: int) -> tuple[float, float]:
    """Return the messages that follow each other, and the bytes that each rank sends, in a ring of `ranks`.

    `size`: bytes that a rank puts in. With P ranks and D bytes, an all-reduce takes 2(P-1) messages of D/P, a
    reduce-scatter and an all-to-all P-1 of D/P, an all-gather P-1 of D, a barrier log2(P) without bytes, and
    any other communication one of D.
    """
    match kind:
        case Collective.ALL_REDUCE:
            return 2 * (ranks - 1), 2 * (ranks - 1) / ranks * size
        case Collective.REDUCE_SCATTER | Collective.REDUCE_SCATTER_BLOCK | Collective.ALL_TO_ALL:
            return ranks - 1, (ranks - 1) / ranks * size
        case Collective.ALL_GATHER:
            return ranks - 1, (ranks - 1) * size
        case Collective.BARRIER:
            return math.log2(ranks), 0
        case _:
            return 1, size


@dataclass(frozen=True, slots=True)
class RingModel:
    """Ring algorithms on links of one latency and bandwidth that no other communication uses."""

    latency_us: float
    bytes_per_us: float
    ranks: int
    """Ranks of groups that `groups` does not name."""
    groups: Mapping[str, int] = field(default_factory=dict)
    """Number of ranks of each process group."""

    def __call__(self, node: Node) -> float:
        """Return the microseconds of a communication."""
        ranks = max(self.groups.get(group_of(node), self.ranks), 1)
        steps, sent = ring_cost(collective_of(node), size_of(node), ranks)
        return steps * self.latency_us + sent / self.bytes_per_us
