"""Checks of one trace: ids, dependencies, types, attributes and times."""

from __future__ import annotations

from collections.abc import Iterator

from convoy_workloads.traces.attributes import FIELDS, value_of
from convoy_workloads.traces.findings import Finding, Findings, Rule, short
from convoy_workloads.traces.trace import (
    COLLECTIVES,
    MAX_RANKS,
    TYPES,
    Collective,
    NodeType,
    Trace,
    collective_of,
    is_communication,
    kind_of,
)
from convoy_workloads.traces.validate.cycles import cycles
from convoy_workloads.traces.wire.chakra_pb2 import Node

NEEDED = {
    NodeType.COLLECTIVE: ("comm_type", "comm_size"),
    NodeType.SEND: ("comm_dst", "comm_size"),
    NodeType.RECV: ("comm_src", "comm_size"),
}
"""Attributes that a simulator reads from each kind of communication."""
NOT_NEGATIVE = ("num_ops", "comm_size", "comm_src", "comm_dst", "comm_tag", "host_gap_us", "wait_us", "step")
MAY_BE_EMPTY = frozenset({Collective.BARRIER, Collective.ALL_TO_ALL, Collective.GATHER, Collective.SCATTER})
"""Collectives into which a rank may put no bytes."""
MINOR = frozenset({Rule.EMPTY_COMMUNICATION})
"""Rules that a trace may break and still be replayed."""
_TOO_LATE = 2**63
"""Times from here on are negative numbers that were written as unsigned."""
_SHOWN = 10


def check_trace(trace: Trace) -> list[Finding]:
    """Return what is wrong with one trace."""
    found = Findings()
    for text in _metadata_faults(trace):
        found.add(Finding(Rule.OUT_OF_RANGE, text, trace.rank))
    places: dict[int, int] = {}
    for place, node in enumerate(trace.nodes):
        if node.id in places:
            names = (short(node.name), short(trace.nodes[places[node.id]].name))
            text = f"the id of {names[0]!r} is that of {names[1]!r} too"
            found.add(Finding(Rule.DUPLICATE_ID, text, trace.rank, node.id))
        else:
            places[node.id] = place
    for node in trace.nodes:
        for rule, text in _faults(node):
            found.add(Finding(rule, text, trace.rank, node.id))
        for name, dependencies in (("ctrl_deps", node.ctrl_deps), ("data_deps", node.data_deps)):
            for dependency in dict.fromkeys(dependencies):
                if dependency not in places:
                    text = f"{name}: node {dependency} is not in the trace"
                    found.add(Finding(Rule.DANGLING_DEPENDENCY, text, trace.rank, node.id))
    for cycle in cycles(trace.nodes):
        shown = " -> ".join(map(str, [*cycle[:_SHOWN], *(["..."] if len(cycle) > _SHOWN else []), cycle[0]]))
        text = f"{len(cycle)} node(s) depend on each other: {shown}"
        found.add(Finding(Rule.CYCLE, text, trace.rank, cycle[0]))
    return found.result()


def _metadata_faults(trace: Trace) -> Iterator[str]:
    for name, least, most in (("world_size", 1, MAX_RANKS), ("rank", 0, MAX_RANKS - 1)):
        value = value_of(trace.metadata, name)
        if isinstance(value, int) and not least <= value <= most:
            yield f"attribute {name} of the trace is {value}; it must be from {least} to {most}"


def _faults(node: Node) -> Iterator[tuple[Rule, str]]:
    """Yield the faults of one node apart from its dependencies."""
    if int(node.type) not in TYPES:
        yield Rule.UNKNOWN_TYPE, f"type {int(node.type)} is not one of the types of nodes"
    for name in ("start_time_micros", "duration_micros"):
        if getattr(node, name) >= _TOO_LATE:
            yield Rule.NEGATIVE_TIME, f"{name} is {getattr(node, name) - 2**64}"
    start, duration = node.start_time_micros, node.duration_micros
    if start < _TOO_LATE and duration < _TOO_LATE <= start + duration:
        yield Rule.NEGATIVE_TIME, "the end, start_time_micros + duration_micros, is beyond 64 bits"
    yield from _attributes(node)
    if is_communication(node):
        yield from _communication(node)


def _attributes(node: Node) -> Iterator[tuple[Rule, str]]:
    seen = set[str]()
    for one in node.attr:
        field = one.WhichOneof("value")
        expected = FIELDS.get(one.name)
        if one.name in seen:
            yield Rule.DUPLICATE_ATTRIBUTE, f"attribute {short(one.name)} occurs more than once"
        seen.add(one.name)
        if expected is not None and field != expected:
            text = (
                f"attribute {one.name} is in the field {field}; readers expect {expected} and ignore others"
            )
            yield Rule.WRONG_FIELD, text
        elif one.name in NOT_NEGATIVE and getattr(one, expected or "int64_val") < 0:
            yield Rule.NEGATIVE_VALUE, f"attribute {one.name} is {getattr(one, expected or 'int64_val')}"


def _communication(node: Node) -> Iterator[tuple[Rule, str]]:
    kind = NodeType(node.type)
    there = {one.name for one in node.attr}
    for name in NEEDED[kind]:
        if name not in there:
            yield Rule.MISSING_ATTRIBUTE, f"a {kind.name} needs the attribute {name}"
    if value_of(node, "is_cpu_op"):
        yield Rule.CPU_COMMUNICATION, "is_cpu_op is true; simulators do not run such a communication"
    if value_of(node, "comm_size") == 0 and collective_of(node) not in MAY_BE_EMPTY:
        yield Rule.EMPTY_COMMUNICATION, f"comm_size is 0: this {kind_of(node)} moves no bytes"
    collective = value_of(node, "comm_type")
    if kind is NodeType.COLLECTIVE and collective is not None and collective not in COLLECTIVES:
        yield (
            Rule.UNKNOWN_COLLECTIVE,
            f"comm_type {collective} is none of {min(COLLECTIVES)} to {max(COLLECTIVES)}",
        )
