"""The traces of a job's ranks as one: which communications belong together, on one clock."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from convoy_workloads.traces.attributes import number_of
from convoy_workloads.traces.comm_models import ring_cost
from convoy_workloads.traces.findings import InvalidTrace, Rule
from convoy_workloads.traces.trace import (
    Collective,
    NodeType,
    Trace,
    collective_of,
    group_of,
    is_communication,
    size_of,
)
from convoy_workloads.traces.validate.all_ranks import check_ranks, named_groups

_ALL_END_TOGETHER = frozenset({
    Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.REDUCE_SCATTER_BLOCK,
    Collective.ALL_TO_ALL, Collective.BARRIER,
})  # fmt: skip
"""Collectives that end on all ranks at about the same time, because each rank needs data of all others."""

_RESOLUTION_US = 1
"""Resolution of recorded times."""

Place = tuple[int, int]
"""A node: the number of the trace in the job, and the place of the node in that trace."""


@dataclass(frozen=True, slots=True, eq=False)
class Transfer:
    """One communication of several ranks: a collective, or a send with its receive."""

    members: tuple[Place, ...]
    """The node of each rank whose trace is there."""
    steps: float
    """Messages that follow each other."""
    bytes: float
    """Bytes that a rank sends over its link."""
    together: bool
    """True for a collective that ends on all ranks at about the same time."""

    @property
    def traces(self) -> Iterator[int]:
        """Yield the number of each trace."""
        return (number for number, _ in self.members)


@dataclass(frozen=True, slots=True)
class Job:
    """The traces of a job's ranks, its transfers, and what to add to the clock of each rank."""

    traces: tuple[Trace, ...]
    transfers: tuple[Transfer, ...]
    offsets: tuple[float, ...]
    """Microseconds to add to the times of each trace, so that all have the clock of the first."""

    def first_start(self, number: int) -> float:
        """Return the earliest start of a trace's nodes on the common clock."""
        first = min((node.start_time_micros for node in self.traces[number].nodes), default=0)
        return first + self.offsets[number]

    def start(self, place: Place) -> float:
        """Return the recorded start of a node on the common clock."""
        number, one = place
        return self.traces[number].nodes[one].start_time_micros + self.offsets[number]

    def end(self, place: Place) -> float:
        """Return the recorded end of a node on the common clock."""
        number, one = place
        return self.start(place) + self.traces[number].nodes[one].duration_micros

    def arrival(self, transfer: Transfer) -> float:
        """Return the recorded time in microseconds at which the last rank arrived."""
        return max(map(self.start, transfer.members))


def job_of(traces: Sequence[Trace], offsets: Sequence[float] | None = None) -> Job:
    """Return the job of these traces. Without `offsets`, clocks that disagree are aligned by the ends of
    collectives.

    A rank without a trace is left out: the others do not wait for it. Raises InvalidTrace if the ranks
    disagree on their communications.
    """
    found = [one for one in check_ranks(traces) if one.rule is not Rule.MISSING_RANK]
    if found:
        raise InvalidTrace(found)
    transfers = tuple(_transfers(traces))
    clocks = _align(traces, transfers) if offsets is None else offsets
    return Job(tuple(traces), transfers, tuple(clocks))


def _transfers(traces: Sequence[Trace]) -> Iterator[Transfer]:
    """Yield the transfers: collectives of a group, and messages between two ranks, in the order of calls."""
    sizes = {name: len(ranks) for name, ranks in named_groups(traces).items()}
    world = max([len(traces), *(number_of(trace.metadata, "world_size") for trace in traces)])
    found = defaultdict[tuple[object, ...], list[Place]](list)
    for number, trace in enumerate(traces):
        counts = defaultdict[tuple[object, ...], int](int)
        for place, node in enumerate(trace.nodes):
            if not is_communication(node):
                continue
            key: tuple[object, ...] = (group_of(node),)
            if int(node.type) != NodeType.COLLECTIVE:
                rank = number if trace.rank is None else trace.rank
                sends = int(node.type) == NodeType.SEND
                source = rank if sends else number_of(node, "comm_src")
                target = number_of(node, "comm_dst") if sends else rank
                key = (group_of(node), source, target, number_of(node, "comm_tag"), size_of(node))
            # A trace without a send's receive still has one key for each of them.
            side = (*key, int(node.type))
            found[*key, counts[side]].append((number, place))
            counts[side] += 1
    for members in found.values():
        nodes = [traces[number].nodes[place] for number, place in members]
        kind = collective_of(nodes[0])
        ranks = max(sizes.get(group_of(nodes[0]), world), len(members))
        size = max(map(size_of, nodes))
        yield Transfer(tuple(members), *ring_cost(kind, size, ranks), together=kind in _ALL_END_TOGETHER)


def _align(traces: Sequence[Trace], transfers: Sequence[Transfer]) -> list[float]:
    """Return what to add to each clock.

    Nothing, if the clocks agree: no rank ends a collective before another one has begun it. Otherwise
    collectives end on all ranks at the same time (median). A rank that shares no such collective with those
    before it keeps its clock.
    """

    def times(place: Place) -> tuple[int, int]:
        node = traces[place[0]].nodes[place[1]]
        return node.start_time_micros, node.start_time_micros + node.duration_micros

    offsets = [0.0] * len(traces)
    differences = defaultdict[int, list[tuple[int, int]]](list)
    agree = True
    for transfer in transfers:
        if transfer.together:
            starts, ends = zip(*map(times, transfer.members), strict=True)
            agree = agree and max(starts) <= min(ends) + _RESOLUTION_US
            first, *others = transfer.members
            for one in others:
                differences[one[0]].append((first[0], times(first)[1] - times(one)[1]))
    if agree:
        return offsets
    for number, found in sorted(differences.items()):
        offsets[number] = statistics.median(offsets[first] + later for first, later in found)
    return offsets
