"""The spot nodes of the simulated cluster: when they start, get notice, and end.

Capacity has two levels. The zone is on or off, and takes all nodes with it. While it is on, each node also
comes and goes alone. Real losses are correlated in this way.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from convoy_workloads.engines.spotlight.params import Cluster

LEAST_SECONDS = 1.0
"""Shortest time for which a zone or a node stays on or off."""


@dataclass(frozen=True, slots=True)
class NodeLife:
    """One spot node from its start to its end."""

    name: str
    start: float
    notice: float
    """Time of the notice; equal to `end` without one."""
    end: float


def lives(cluster: Cluster, seed: int) -> Iterator[NodeLife]:
    """Yield the nodes in the order of their starts, without end."""
    if cluster.trace == "steady":
        yield from (
            NodeLife(f"spot-{slot}-0", 0.0, float("inf"), float("inf")) for slot in range(cluster.spot)
        )
        return
    yield from heapq.merge(
        *(_slot(cluster, seed, slot) for slot in range(cluster.spot)), key=lambda one: one.start
    )


def _zone(cluster: Cluster, seed: int) -> Iterator[tuple[float, float]]:
    """Yield the times at which the zone has capacity."""
    random = np.random.default_rng((seed, 0))
    start = 0.0
    while True:
        end = start + max(LEAST_SECONDS, random.exponential(cluster.zone_up_seconds))
        yield start, end
        start = end + max(LEAST_SECONDS, random.exponential(cluster.zone_down_seconds))


def _slot(cluster: Cluster, seed: int, slot: int) -> Iterator[NodeLife]:
    """Yield the nodes of one slot, one after another."""
    random = np.random.default_rng((seed, 1 + slot))
    number = 0
    for opened, closed in _zone(cluster, seed):
        start = opened
        while start < closed:
            end = min(closed, start + max(LEAST_SECONDS, random.exponential(cluster.node_up_seconds)))
            warned = random.random() >= cluster.unnoticed
            notice = max(start, end - cluster.notice_seconds) if warned else end
            yield NodeLife(f"spot-{slot}-{number}", start, notice, end)
            number += 1
            start = end + max(LEAST_SECONDS, random.exponential(cluster.node_down_seconds))
