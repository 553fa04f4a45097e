"""Findings about ranks that wait for ever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from convoy_controllers.astrasim.network.medium import Key
from convoy_controllers.astrasim.network.transport import COLLECTIVE_TAGS, RENDEZVOUS_TAGS, Transport
from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    CollectiveNode,
    ComputeNode,
    MessageNode,
    Node,
    Simulation,
)
from convoy_controllers.astrasim.result import Finding, FindingKind
from convoy_controllers.astrasim.workload.rank import Rank

SHOWN = 3
"""Missing messages that a finding names."""


def diagnose(ranks: Iterable[Rank], transport: Transport, simulation: Simulation) -> list[Finding]:
    """Return a finding for each node that waits for ever, and for each one that never runs."""
    missing: dict[int, list[Key]] = {}
    for key in transport.pending():
        missing.setdefault(key[2], []).append(key)
    unmatched: dict[int, list[Key]] = {}
    for key in transport.unmatched():
        unmatched.setdefault(key[2], []).append(key)
    found: list[Finding] = []
    for rank in ranks:
        if rank.figures is None:
            found += _stuck(rank, missing.get(rank.number, []), unmatched.get(rank.number, []), simulation)
        found += _never_issued(rank)
    return found


def _stuck(rank: Rank, missing: list[Key], unmatched: list[Key], simulation: Simulation) -> Iterator[Finding]:
    for number in sorted(rank.graph.running):
        node = rank.graph.nodes[number]
        lacks = [key for key in missing if _concerns(node, key)]
        others = [key for key in unmatched if _concerns(node, key, any_size=True)]
        reason = _uneven(node, simulation) or _reason(node, lacks, others)
        yield Finding(FindingKind.STUCK, reason, rank.number, number)
    if not rank.graph.running:
        ready = ", ".join(map(str, rank.graph.ready))
        yield Finding(FindingKind.STUCK, f"nothing makes the rank issue its ready nodes {ready}", rank.number)


def _uneven(node: Node, simulation: Simulation) -> str:
    """Return the reason of a halving-doubling over a number of ranks that is not a power of two."""
    if not isinstance(node, CollectiveNode):
        return ""
    implementations = simulation.system.implementations.get(node.type, ())
    if not any(one.kind is AlgorithmKind.HALVING_DOUBLING for one in implementations):
        return ""
    group = None if node.group is None else len(simulation.workload.groups[node.group])
    if group is None or group == simulation.network.ranks:
        sizes = [
            simulation.network.ranks if one.flat else size
            for one, size in zip(implementations, simulation.network.sizes, strict=False)
            if one.kind is AlgorithmKind.HALVING_DOUBLING
        ]
    else:
        sizes = [group] if len(implementations) == 1 else []
    wrong = [size for size in sizes if size & (size - 1)]
    return f"halving-doubling needs a power of two of ranks, has {wrong[0]}" if wrong else ""


def _reason(node: Node, missing: list[Key], unmatched: list[Key]) -> str:
    match node:
        case ComputeNode():
            return "the computation never ends"
        case MessageNode(send=True):
            return f"rank {node.peer} never gets ready to receive the message"
        case MessageNode():
            own = f"waits for {node.size} bytes from rank {node.peer} with tag {node.tag}"
            return own + _but(unmatched)
        case CollectiveNode():
            if not missing:
                return f"the {node.type} waits for a turn that never comes"
            shown = "; ".join(f"{key[3]} bytes from rank {key[1]}" for key in missing[:SHOWN])
            more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
            return (
                f"the {node.type} waits for {shown}{more}: the ranks run no such collective, or another one "
                f"first{_but(unmatched)}"
            )


def _but(unmatched: list[Key]) -> str:
    if not unmatched:
        return ""
    shown = "; ".join(
        f"{size} bytes from rank {source}" + (f" with tag {tag}" if tag < COLLECTIVE_TAGS else "")
        for tag, source, _, size in unmatched[:SHOWN]
    )
    return f"; messages that nothing waits for: {shown}"


def _concerns(node: Node, key: Key, any_size: bool = False) -> bool:
    """Return True if the message may be one of the node's. Rendezvous messages concern no node."""
    tag, source, _, size = key
    if tag >= RENDEZVOUS_TAGS:
        return False
    if isinstance(node, MessageNode):
        same = source == node.peer and (any_size or (size == node.size and tag == node.tag % COLLECTIVE_TAGS))
        return same and tag < COLLECTIVE_TAGS and not node.send
    return isinstance(node, CollectiveNode) and tag >= COLLECTIVE_TAGS


def _never_issued(rank: Rank) -> Iterator[Finding]:
    # A stuck rank has its own findings, and its later nodes wait for the stuck one.
    if rank.figures is not None and rank.graph.waiting:
        nodes = ", ".join(map(str, rank.graph.waiting))
        yield Finding(
            FindingKind.NEVER_ISSUED,
            f"nodes {nodes} never run, because they depend on each other",
            rank.number,
        )
