"""Figures of a replay: critical path, exposed communication, idle time, and a table of operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from convoy_workloads.traces.attributes import number_of, value_of
from convoy_workloads.traces.intervals import union_length
from convoy_workloads.traces.replay import Played, Replay
from convoy_workloads.traces.trace import NodeType, group_of, is_communication, kind_of, size_of


@dataclass(frozen=True, slots=True)
class Operation:
    """All nodes of one name and kind."""

    name: str
    kind: str
    count: int
    total_us: float
    critical_us: float
    """Microseconds of these nodes on the critical path."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The communications of one kind in one process group."""

    group: str
    kind: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """The figures of one rank. Times are in microseconds of the replay."""

    span_us: float
    compute_us: float
    """Time in which at least one computation runs; on devices, if the trace has nodes of devices."""
    communication_us: float
    """Time in which at least one communication runs."""
    exposed_us: float
    """Time in which a communication runs and no computation."""
    host_us: float
    """Time in which only operators of the host run, beside the computations of devices; 0 without devices."""
    idle_us: float
    """Time in which nothing runs."""
    waited_us: int
    """Recorded time in which operators waited for communications."""
    critical_compute_us: float
    critical_communication_us: float
    steps: int
    bytes_per_step: float
    """Bytes that this rank puts into communications; of the whole trace if it names no steps."""
    traffic: list[Traffic]
    operations: list[Operation]
    """Operations, the longest first."""

    @property
    def exposed_share(self) -> float:
        """Return exposed communication as a share of the span."""
        return self.exposed_us / self.span_us if self.span_us else 0.0


def analyse(replay: Replay) -> Analysis:
    """Return the figures of a replay."""
    played = [one for one in replay.played if int(one.node.type) != NodeType.METADATA]
    communications = [one for one in played if is_communication(one.node)]
    busy = union_length((one.start, one.end) for one in played)
    computations = _computations(played)
    compute = union_length((one.start, one.end) for one in computations)
    covered = union_length((one.start, one.end) for one in (*computations, *communications))
    path = replay.critical_path()
    communicated = sum(one.end - one.start for one in path if is_communication(one.node))
    steps = {step for one in played if (step := value_of(one.node, "step")) is not None}
    return Analysis(
        span_us=replay.span,
        compute_us=compute,
        communication_us=union_length((one.start, one.end) for one in communications),
        exposed_us=covered - compute,
        host_us=busy - covered,
        idle_us=replay.span - busy,
        waited_us=sum(number_of(one.node, "wait_us") for one in played),
        critical_compute_us=sum(one.end - one.start for one in path) - communicated,
        critical_communication_us=communicated,
        steps=len(steps),
        bytes_per_step=sum(size_of(one.node) for one in communications) / max(len(steps), 1),
        traffic=_traffic(communications),
        operations=_operations(played, path),
    )


def _computations(played: Iterable[Played]) -> list[Played]:
    """Return the computations that can hide a communication.

    Those of devices, where a trace has any: operators of the host only launch them, or wait.
    """
    others = [one for one in played if not is_communication(one.node)]
    device = [
        one
        for one in others
        if int(one.node.type) == NodeType.COMP and value_of(one.node, "is_cpu_op") is False
    ]
    return device or others


def _traffic(communications: Iterable[Played]) -> list[Traffic]:
    counts = defaultdict[tuple[str, str], list[int]](list)
    for one in communications:
        counts[group_of(one.node), kind_of(one.node)].append(size_of(one.node))
    return [Traffic(group, kind, len(sizes), sum(sizes)) for (group, kind), sizes in sorted(counts.items())]


def _operations(played: Iterable[Played], path: Iterable[Played]) -> list[Operation]:
    times = defaultdict[tuple[str, str], list[float]](list)
    critical = defaultdict[tuple[str, str], float](float)
    for one in played:
        times[one.node.name, kind_of(one.node)].append(one.end - one.start)
    for one in path:
        critical[one.node.name, kind_of(one.node)] += one.end - one.start
    found = (Operation(*key, len(ones), sum(ones), critical.get(key, 0.0)) for key, ones in times.items())
    return sorted(found, key=lambda one: (-one.total_us, one.name))
