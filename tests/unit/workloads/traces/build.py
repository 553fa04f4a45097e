"""Nodes and traces for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from convoy_workloads.traces.attributes import set_attributes
from convoy_workloads.traces.trace import Collective, NodeType, Trace
from convoy_workloads.traces.wire.chakra_pb2 import Node

FIXTURES = Path(__file__).parent / "fixtures"


def comp(id: int, deps: tuple[int, ...] = (), duration: int = 10, **attributes: Any) -> Node:
    """Return a computation."""
    return node(NodeType.COMP, id, deps, duration, is_cpu_op=True, **attributes)


def collective(
    id: int,
    kind: Collective = Collective.ALL_REDUCE,
    size: int = 64,
    *,
    group: str | None = None,
    **more: Any,
) -> Node:
    """Return a collective."""
    attributes = {"is_cpu_op": False, "comm_type": int(kind), "comm_size": size, "pg_name": group}
    deps, duration = more.pop("deps", ()), more.pop("duration", 10)
    return node(NodeType.COLLECTIVE, id, deps, duration, **{**attributes, **more})


def send(id: int, source: int, target: int, *, size: int = 64, tag: int = 0, **more: Any) -> Node:
    """Return a send."""
    return _message(NodeType.SEND, id, source, target, size, tag, more)


def recv(id: int, source: int, target: int, *, size: int = 64, tag: int = 0, **more: Any) -> Node:
    """Return a receive."""
    return _message(NodeType.RECV, id, source, target, size, tag, more)


def _message(
    kind: NodeType, id: int, source: int, target: int, size: int, tag: int, more: dict[str, Any]
) -> Node:
    ends = {"comm_src": source, "comm_dst": target, "comm_tag": tag, "comm_size": size}
    return node(kind, id, more.pop("deps", ()), more.pop("duration", 10), is_cpu_op=False, **ends, **more)


def node(kind: NodeType, id: int, deps: tuple[int, ...] = (), duration: int = 10, **attributes: Any) -> Node:
    """Return a node of any type."""
    start = attributes.pop("start", 0)
    made = Node(id=id, name=f"node {id}", type=int(kind), data_deps=deps, duration_micros=duration)
    made.start_time_micros = start
    set_attributes(made, **attributes)
    return made


def trace(*nodes: Node, rank: int | None = None) -> Trace:
    """Return a trace of these nodes."""
    return Trace(list(nodes), rank=rank)
