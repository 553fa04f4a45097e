"""The spot nodes of the simulated cluster: when they start, get notice, and end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from convoy_workloads.engines.spotlight.params import Cluster
from convoy_workloads.spot.availability import Availability
from convoy_workloads.spot.trace import SECONDS_PER_HOUR, Notices, SpotTrace, join, steady
from convoy_workloads.spot.trace_csv import SHIPPED
from convoy_workloads.spot.trace_csv import trace_of as counts_trace


@dataclass(frozen=True, slots=True)
class NodeLife:
    """One spot node from its start to its end. Times are in seconds of the virtual clock."""

    name: str
    start: float
    notice: float
    """Time of the notice; equal to `end` without one."""
    end: float


def trace_of(cluster: Cluster, seed: int) -> SpotTrace:
    """Return the trace of the cluster's spot nodes."""
    if cluster.trace == "steady":
        return steady(cluster.spot, cluster.hours * SECONDS_PER_HOUR)
    notices = Notices(cluster.notice_seconds, 1 - cluster.unnoticed)
    if cluster.trace == "model":
        hours = (cluster.zone_up_hours, cluster.zone_down_hours)
        model = Availability(*hours, cluster.node_up_hours, cluster.node_down_hours)
        return model.trace(cluster.spot, cluster.zones, cluster.hours, seed, notices)
    return _recorded(cluster, notices, seed)


def _recorded(cluster: Cluster, notices: Notices, seed: int) -> SpotTrace:
    """Return a recorded trace with the cluster's number of nodes. It begins at a random moment, and its
    beginning follows its end.
    """
    counts = SHIPPED[cluster.trace].counts()
    most = max(count for _, count in counts)
    scaled = [(at, round(count * cluster.spot / most)) for at, count in counts]
    whole = counts_trace(scaled, notices, seed)
    length = whole.seconds
    start = random.Random(f"{seed}/spotlight/start").uniform(0, length)  # noqa: S311 - must be repeatable
    return join(whole.window(start, length - start), whole.window(0, start))


def lives(trace: SpotTrace) -> Iterator[NodeLife]:
    """Yield the nodes of a trace in the order of their starts."""
    yield from sorted(_lives(trace), key=lambda one: one.start)


def _lives(trace: SpotTrace) -> Iterator[NodeLife]:
    alive: dict[str, float] = {}
    started: dict[str, int] = {}
    for change in trace.changes():
        for name in change.vanished:
            start = alive.pop(name)
            notice = max(start, change.at - change.notice_seconds)
            yield NodeLife(f"{name}-{started[name]}", start, notice, change.at)
        for name in change.appeared:
            alive[name] = change.at
            started[name] = started.get(name, 0) + 1
    forever = float("inf")
    yield from (NodeLife(f"{name}-{started[name]}", start, forever, forever) for name, start in alive.items())
