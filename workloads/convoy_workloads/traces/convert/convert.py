"""The conversion of one rank's host and Kineto traces."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_workloads.traces.attributes import set_attributes
from convoy_workloads.traces.convert.dependencies import connect
from convoy_workloads.traces.convert.groups import Groups
from convoy_workloads.traces.convert.nodes import NodeMaker
from convoy_workloads.traces.convert.segments import Operator, Segment, cut_at_starts, nest, segments
from convoy_workloads.traces.convert.waits import mark_waits
from convoy_workloads.traces.convert.works import Work, find_works, is_backend_work
from convoy_workloads.traces.findings import Finding, Findings, InvalidTrace, Rule
from convoy_workloads.traces.torch_json.host import Host, HostNode, read_host
from convoy_workloads.traces.torch_json.kineto import HOST, Event, Kineto, read_kineto
from convoy_workloads.traces.trace import Trace
from convoy_workloads.traces.wire.limits import LIMITS, Limits

MAX_LANES = 1000
"""Threads and streams. Each segment after idle time is compared with all."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A converted trace, and what was not clear in the traces of torch."""

    trace: Trace
    findings: list[Finding]


def convert(
    host: Mapping[str, Any], kineto: Mapping[str, Any], rank: int | None = None, limits: Limits = LIMITS
) -> Conversion:
    """Return the Chakra trace of one rank from the JSON objects of its host and Kineto traces.

    `rank` counts only if the Kineto trace does not name the rank. Raises InvalidTrace if an object is no such
    trace.
    """
    found = Findings()
    operators, timeline = read_host(host, found, limits), read_kineto(kineto, found, limits)
    named = timeline.rank()
    rank = rank if named is None else named
    works = find_works(timeline, operators, found)
    lanes = _lanes(timeline, works, found)
    mark_waits(lanes, works)
    hosts = _hosts(
        operators, {segment.operator for lane in lanes for segment in lane}, timeline.events, found
    )
    items = connect(lanes, works, hosts)
    groups = Groups(timeline, operators)
    nodes = NodeMaker(items, hosts, groups, rank).make(found)
    trace = Trace(nodes, rank=rank)
    set_attributes(
        trace.metadata,
        schema=operators.schema,
        rank=rank,
        world_size=timeline.world_size(),
        process_groups=groups.as_text(),
    )
    return Conversion(trace, found.result())


def _lanes(kineto: Kineto, works: list[Work], found: Findings) -> list[list[Segment]]:
    """Return the segments of each thread of the host."""
    own = defaultdict[str, list[Event]](list)
    for work in works:
        if work.launch is not None and work.launch.lane != work.event.lane:
            own[work.event.lane].append(work.event)
    threads = defaultdict[str, list[Event]](list)
    for event in kineto.events:
        if event.category in HOST and not is_backend_work(event):
            threads[event.lane].append(event)
    if len({event.lane for event in kineto.events}) > MAX_LANES:
        text = f"traceEvents: more than {MAX_LANES} threads and streams"
        raise InvalidTrace([Finding(Rule.TOO_MANY_NODES, text)])
    cuts = cut_at_starts(works)
    outside = (list(_outside(events, own[lane])) for lane, events in threads.items())
    return [segments(nest(events, found), cuts) for events in outside if events]


def _outside(events: Iterable[Event], works: list[Event]) -> Iterator[Event]:
    """Yield the events of a thread of gloo that are no part of its works. Events are in the order of time."""
    remaining = deque(sorted(works, key=lambda work: work.start))
    busy_until = 0
    for event in events:
        while remaining and remaining[0].start <= event.start:
            busy_until = max(busy_until, remaining.popleft().end)
        if event.start >= busy_until:
            yield event


def _hosts(
    host: Host, operators: Iterable[Operator], events: Iterable[Event], findings: Findings
) -> dict[Operator, HostNode]:
    """Return the node of the host trace for each operator, by the number of the record function."""
    nodes = {node.record: node for node in host.nodes if node.record}
    found = {}
    if nodes and not any(event.number("Record function id") for event in events):
        text = (
            "traceEvents: no event has a `Record function id`, as new versions of torch write; so the "
            "tensors of the host trace have no operators"
        )
        findings.add(Finding(Rule.INVALID_FIELD, text))
    for operator in operators:
        node = nodes.get(operator.event.number("Record function id") or 0)
        if node is not None and node.name == operator.event.name:
            found[operator] = node
    return found
