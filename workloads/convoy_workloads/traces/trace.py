"""The trace of one rank, as all parts of this package pass it on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, cast

from convoy_workloads.traces.attributes import text_of, value_of
from convoy_workloads.traces.wire.messages import GlobalMetadata, Node

SCHEMA_VERSION = "0.0.4"
"""Version of the schema that upstream's own tools write."""


class NodeType(IntEnum):
    """Kind of work of a node."""

    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    SEND = 5
    RECV = 6
    COLLECTIVE = 7


class Collective(IntEnum):
    """Kind of a collective: the values of the attribute `comm_type`."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


MAX_RANKS = 1_000_000
"""Ranks of a job."""
COMMUNICATION: frozenset[int] = frozenset({NodeType.SEND, NodeType.RECV, NodeType.COLLECTIVE})
"""Types of the nodes that communicate."""
TYPES: frozenset[int] = frozenset(NodeType)
COLLECTIVES: frozenset[int] = frozenset(Collective)


@dataclass
class Trace:
    """The trace of one rank: facts about the whole trace, and its nodes in the order of the file."""

    nodes: list[Node] = field(default_factory=list)
    metadata: GlobalMetadata = field(default_factory=lambda: GlobalMetadata(version=SCHEMA_VERSION))
    rank: int | None = None


def set_type(node: Node, kind: NodeType) -> None:
    """Set the type of a node."""
    node.type = cast(Any, int(kind))


def is_communication(node: Node) -> bool:
    """Return True for sends, receives and collectives."""
    return int(node.type) in COMMUNICATION


def collective_of(node: Node) -> Collective | None:
    """Return the kind of a collective; None for other nodes and unknown kinds."""
    value = value_of(node, "comm_type")
    if int(node.type) != NodeType.COLLECTIVE or value not in COLLECTIVES:
        return None
    return Collective(value)


def size_of(node: Node) -> int:
    """Return the bytes of a communication: what this rank puts into it."""
    return int(value_of(node, "comm_size") or 0)


def group_of(node: Node) -> str:
    """Return the name of the process group of a communication; empty for the group of all ranks."""
    return text_of(node, "pg_name")


def kind_of(node: Node) -> str:
    """Return the kind of a node in words, such as COMP, SEND or ALL_REDUCE."""
    collective = collective_of(node)
    if collective is not None:
        return collective.name
    return NodeType(node.type).name if int(node.type) in TYPES else f"type {node.type}"


def groups_of(metadata: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each process group, each once, from the parsed attribute `process_groups`."""
    return {
        name: tuple(dict.fromkeys(rank for rank in ranks if isinstance(rank, int)))
        for name, ranks in metadata.items()
        if isinstance(ranks, list)
    }
