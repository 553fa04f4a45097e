"""Checks of the traces of all ranks together: collectives in the same order, and a receive for each send."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from convoy_workloads.traces.attributes import number_of, text_of
from convoy_workloads.traces.findings import Finding, Findings, Rule, first_of, short
from convoy_workloads.traces.trace import (
    Collective,
    NodeType,
    Trace,
    collective_of,
    group_of,
    groups_of,
    size_of,
)
from convoy_workloads.traces.wire.chakra_pb2 import Node

UNEQUAL = frozenset({Collective.GATHER, Collective.SCATTER, Collective.ALL_TO_ALL, Collective.BARRIER})
"""Collectives to which ranks may contribute different numbers of bytes."""


def check_ranks(traces: Sequence[Trace]) -> list[Finding]:
    """Return what the traces of several ranks disagree on. A trace without a rank is left out."""
    found = Findings()
    by_rank: dict[int, Trace] = {}
    for trace in traces:
        if trace.rank in by_rank:
            found.add(Finding(Rule.DUPLICATE_RANK, "two traces have this rank", trace.rank))
        elif trace.rank is not None:
            by_rank[trace.rank] = trace
    if len(by_rank) > 1:
        _check_collectives(by_rank, found)
        _check_messages(by_rank, found)
    return found.result()


@dataclass(frozen=True, slots=True)
class _Call:
    """A collective as one rank calls it."""

    kind: str
    bytes: int | None
    node: int

    def __str__(self) -> str:
        return self.kind if self.bytes is None else f"{self.kind} of {self.bytes} bytes"


def _check_collectives(traces: Mapping[int, Trace], found: Findings) -> None:
    """Compare the collectives of each group, in the order of the files, with those of its first rank."""
    calls = {rank: _calls(trace.nodes) for rank, trace in traces.items()}
    named = named_groups(traces.values())
    callers = defaultdict[str, list[int]](list)
    for rank in sorted(calls):
        for group in calls[rank]:
            callers[group].append(rank)
    for group in sorted(callers):
        members = named.get(group) or (tuple(sorted(traces)) if group in {"", "0"} else ())
        ranks = dict.fromkeys(rank for rank in members if rank in calls)
        ranks |= dict.fromkeys(callers[group])
        missing = [rank for rank in members if rank not in calls]
        if missing:
            text = f"group {short(group)!r} has ranks of which there is no trace: {first_of(missing)}"
            found.add(Finding(Rule.MISSING_RANK, text, missing[0]))
        first, *others = ranks
        for rank in others:
            text, node = _difference(calls[first].get(group, []), calls[rank].get(group, []), first)
            if text:
                found.add(Finding(Rule.COLLECTIVE_MISMATCH, f"group {short(group)!r}: {text}", rank, node))


def _calls(nodes: Iterable[Node]) -> dict[str, list[_Call]]:
    calls = defaultdict[str, list[_Call]](list)
    for node in nodes:
        if int(node.type) == NodeType.COLLECTIVE:
            kind = collective_of(node)
            size = None if kind in UNEQUAL else size_of(node)
            calls[group_of(node)].append(
                _Call("unknown collective" if kind is None else kind.name, size, node.id)
            )
    return calls


def named_groups(traces: Iterable[Trace]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each process group, from the traces that list them."""
    named: dict[str, tuple[int, ...]] = {}
    for trace in traces:
        try:
            listed = json.loads(text_of(trace.metadata, "process_groups") or "{}")
        except (ValueError, RecursionError):
            continue
        if isinstance(listed, dict):
            named |= groups_of(listed)
    return named


def _difference(first: list[_Call], other: list[_Call], rank: int) -> tuple[str, int | None]:
    """Return how the collectives of two ranks differ, and the other rank's node; empty if they do not."""
    for number, (one, two) in enumerate(zip(first, other, strict=False), 1):
        if (one.kind, one.bytes) != (two.kind, two.bytes):
            return f"collective {number} is {two}, but on rank {rank} it is {one} (node {one.node})", two.node
    if len(first) == len(other):
        return "", None
    node = other[len(first)].node if len(other) > len(first) else None
    return f"{len(other)} collectives, but rank {rank} has {len(first)}", node


_Message = tuple[str, int, int, int, int]
"""Group, source, destination, tag and bytes."""


def _check_messages(traces: Mapping[int, Trace], found: Findings) -> None:
    """Match sends with receives by source, destination, tag and bytes."""
    sends, recvs = Counter[_Message](), Counter[_Message]()
    listed: list[tuple[NodeType, int, int, _Message]] = []
    for rank, trace in traces.items():
        for kind, node, message in _messages(rank, trace.nodes):
            listed.append((kind, rank, node, message))
            (sends if kind is NodeType.SEND else recvs)[message] += 1
    for kind, rank, node, message in reversed(listed):
        mine, others = (sends, recvs) if kind is NodeType.SEND else (recvs, sends)
        if mine[message] > others[message]:
            mine[message] -= 1
            _, source, target, tag, size = message
            other = target if kind is NodeType.SEND else source
            there = "has no such receive" if kind is NodeType.SEND else "has no such send"
            why = f"rank {other} {there}" if other in traces else f"there is no trace of rank {other}"
            rule = Rule.UNMATCHED_SEND if kind is NodeType.SEND else Rule.UNMATCHED_RECV
            text = f"{size} bytes from rank {source} to rank {target}, tag {tag}: {why}"
            found.add(Finding(rule, text, rank, node))


def _messages(rank: int, nodes: Iterable[Node]) -> Iterator[tuple[NodeType, int, _Message]]:
    """Yield the sends and receives of a rank. The own end is the rank itself: some traces leave it out."""
    for node in nodes:
        kind = int(node.type)
        tag, size, group = number_of(node, "comm_tag"), size_of(node), group_of(node)
        if kind == NodeType.SEND:
            yield NodeType.SEND, node.id, (group, rank, number_of(node, "comm_dst"), tag, size)
        elif kind == NodeType.RECV:
            yield NodeType.RECV, node.id, (group, number_of(node, "comm_src"), rank, tag, size)
