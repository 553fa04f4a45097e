"""Findings about a workload that need no run: dependencies, peers, groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from convoy_controllers.astrasim.parameters import CollectiveNode, MessageNode, Node, Simulation
from convoy_controllers.astrasim.result import Finding, FindingKind


def check(simulation: Simulation) -> list[Finding]:
    """Return the findings, those of lower ranks first. Ranks that share a list of nodes are checked alike."""
    found: list[Finding] = []
    communicating: dict[int, list[Node]] = {}
    """Nodes of each list whose findings depend on the rank."""
    for rank, nodes in enumerate(simulation.workload.ranks):
        # The findings of a shared list name the first rank that has it.
        if id(nodes) not in communicating:
            communicating[id(nodes)] = [node for node in nodes if _communicates(node)]
            found += _dependencies(rank, nodes)
        found += _communication(simulation, rank, communicating[id(nodes)])
    return found


def _dependencies(rank: int, nodes: Sequence[Node]) -> Iterator[Finding]:
    known = set[int]()
    for node in nodes:
        if node.id in known:
            yield _finding(rank, node, "another node of the rank has the same id")
        known.add(node.id)
    if not nodes:
        yield Finding(FindingKind.INVALID_NODE, "the rank has no nodes: give it a computation of 0 us", rank)
        return
    dangling = False
    for node in nodes:
        for parent in node.deps:
            if parent not in known:
                dangling = True
                yield _finding(rank, node, f"depends on node {parent}, which the rank does not have")
    if not dangling and all(node.deps for node in nodes):
        yield Finding(FindingKind.INVALID_NODE, "every node depends on another one, so none can start", rank)


def _communicates(node: Node) -> bool:
    return isinstance(node, MessageNode) or (isinstance(node, CollectiveNode) and node.group is not None)


def _communication(simulation: Simulation, rank: int, nodes: Sequence[Node]) -> Iterator[Finding]:
    ranks = simulation.network.ranks
    groups = simulation.workload.groups
    for node in nodes:
        if isinstance(node, MessageNode):
            if not 0 <= node.peer < ranks:
                yield _finding(rank, node, f"names rank {node.peer}, but the ranks are 0 to {ranks - 1}")
            elif node.peer == rank:
                yield _finding(rank, node, "a rank cannot send to itself")
            if node.size < 1:
                yield _finding(rank, node, "a message needs at least one byte")
        elif isinstance(node, CollectiveNode) and node.group is not None:
            if node.group not in groups:
                yield _finding(rank, node, f"there is no communication group {node.group}")
            elif rank not in groups[node.group]:
                yield _finding(rank, node, f"the rank is not in communication group {node.group}")


def _finding(rank: int, node: Node, message: str) -> Finding:
    return Finding(FindingKind.INVALID_NODE, message, rank, node.id)
