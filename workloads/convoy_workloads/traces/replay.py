"""Replay of a trace: start times by dependencies, with communication times as recorded or by a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convoy_workloads.traces.attributes import number_of
from convoy_workloads.traces.findings import Finding, InvalidTrace, Rule
from convoy_workloads.traces.order import ordered
from convoy_workloads.traces.trace import Trace, is_communication
from convoy_workloads.traces.wire.messages import Node

CommModel = Callable[[Node], float]
"""Microseconds that a communication takes."""


@dataclass(frozen=True, slots=True)
class Played:
    """One node of a replay, with its times in microseconds since the begin."""

    node: Node
    start: float
    end: float
    because: int | None
    """Place in the trace of the dependency that ended last; None without dependencies."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The times of all nodes, in the order of the trace."""

    played: list[Played]

    @property
    def span(self) -> float:
        """Return the microseconds from the begin to the last end."""
        return max((one.end for one in self.played), default=0.0)

    def critical_path(self) -> list[Played]:
        """Return the nodes that determine the span, in the order of time."""
        if not self.played:
            return []
        place: int | None = max(range(len(self.played)), key=lambda one: (self.played[one].end, one))
        path: list[Played] = []
        while place is not None:
            path.append(self.played[place])
            place = path[-1].because
        return path[::-1]


def recorded(node: Node) -> float:
    """Return the recorded duration."""
    return float(node.duration_micros)


def replay(trace: Trace, comm: CommModel = recorded) -> Replay:
    """Return start and end of each node: it starts when its dependencies have ended, and the recorded gap of
    the host has passed.

    Raises InvalidTrace for duplicate ids, unknown dependencies and cycles.
    """
    return _replay(trace, lambda node: comm(node) if is_communication(node) else float(node.duration_micros))


def naive_replay(trace: Trace) -> Replay:
    """Return the replay under the naive rule: the time in which an operator waits for a communication is
    taken for work of its own, which follows the communication.
    """
    return _replay(trace, lambda node: float(node.duration_micros + number_of(node, "wait_us")))


def has_times(trace: Trace) -> bool:
    """Return True if the trace has recorded times. Synthetic traces have durations, and start nowhere."""
    return any(node.start_time_micros for node in trace.nodes)


def measured_span(trace: Trace) -> int:
    """Return the recorded microseconds from the first start to the last end."""
    if not trace.nodes:
        return 0
    begin = min(node.start_time_micros for node in trace.nodes)
    return max(node.start_time_micros + node.duration_micros for node in trace.nodes) - begin


def _replay(trace: Trace, duration: Callable[[Node], float]) -> Replay:
    nodes = trace.nodes
    played: list[Played | None] = [None] * len(nodes)
    places = {node.id: place for place, node in enumerate(nodes)}
    for place in topological(trace):
        node = nodes[place]
        ready, because = 0.0, None
        for dependency in (*node.data_deps, *node.ctrl_deps):
            one = places[dependency]
            end = played[one]
            if end is not None and (because is None or end.end > ready):
                ready, because = end.end, one
        start = ready + number_of(node, "host_gap_us")
        played[place] = Played(node, start, start + duration(node), because)
    return Replay([one for one in played if one is not None])


def drop_dangling(trace: Trace) -> int:
    """Remove the dependencies on nodes that are not in the trace. Return their number."""
    ids = {node.id for node in trace.nodes}
    dropped = 0
    for node in trace.nodes:
        for dependencies in (node.data_deps, node.ctrl_deps):
            kept = [one for one in dependencies if one in ids]
            dropped += len(dependencies) - len(kept)
            if len(kept) < len(dependencies):
                dependencies[:] = kept
    return dropped


def topological(trace: Trace) -> list[int]:
    """Return the places of the nodes so that dependencies come first.

    Raises InvalidTrace for duplicate ids, unknown dependencies and cycles.
    """
    places: dict[int, int] = {}
    for place, node in enumerate(trace.nodes):
        if node.id in places:
            raise InvalidTrace([Finding(Rule.DUPLICATE_ID, "the id is taken", trace.rank, node.id)])
        places[node.id] = place
    needs: dict[int, set[int]] = {}
    for place, node in enumerate(trace.nodes):
        needs[place] = set()
        for dependency in (*node.data_deps, *node.ctrl_deps):
            if dependency not in places:
                text = f"depends on node {dependency}, which is not in the trace"
                raise InvalidTrace([Finding(Rule.DANGLING_DEPENDENCY, text, trace.rank, node.id)])
            needs[place].add(places[dependency])
    found, rest = ordered(needs)
    if rest:
        text = f"{len(rest)} nodes depend on each other in a cycle, or on such nodes"
        raise InvalidTrace([Finding(Rule.CYCLE, text, trace.rank, trace.nodes[min(rest)].id)])
    return found
