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


@dataclass(frozen=True, slots=True)
class RingModel:
    """Ring algorithms on links of one latency and bandwidth.

    With P ranks, latency a and D bytes at bandwidth b, an all-reduce takes 2(P-1)a + 2(P-1)/P D/b, a
    reduce-scatter and an all-to-all (P-1)a + (P-1)/P D/b, an all-gather of D bytes from each rank
    (P-1)(a + D/b), a barrier log2(P) a, and any other communication a + D/b.
    """

    latency_us: float
    bytes_per_us: float
    ranks: int
    """Ranks of groups that `groups` does not name."""
    groups: Mapping[str, int] = field(default_factory=dict)
    """Number of ranks of each process group."""

    def __call__(self, node: Node) -> float:
        """Return the microseconds of a communication."""
        ranks = max(self.groups.get(group_of(node), self.ranks), 1)
        a, transfer = self.latency_us, size_of(node) / self.bytes_per_us
        match collective_of(node):
            case Collective.ALL_REDUCE:
                return 2 * (ranks - 1) * a + 2 * (ranks - 1) / ranks * transfer
            case Collective.REDUCE_SCATTER | Collective.REDUCE_SCATTER_BLOCK | Collective.ALL_TO_ALL:
                return (ranks - 1) * a + (ranks - 1) / ranks * transfer
            case Collective.ALL_GATHER:
                return (ranks - 1) * (a + transfer)
            case Collective.BARRIER:
                return math.log2(ranks) * a
            case _:
                return a + transfer
