"""The nodes of the cluster and the room on them, as placement sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from convoy_controllers.cached import Node
from convoy_controllers.placement.eligible import may_run
from convoy_controllers.placement.packing import Room
from convoy_controllers.placement.requests import Amounts, subtract
from convoy_controllers.placement.topology import Topology, topology


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """A node, and what pods may still request there."""

    node: Node
    free: Amounts = field(default_factory=dict)
    """Thousandths of each resource's unit, by name of the resource."""


Rooms = Mapping[str, NodeRoom]
"""All nodes by name."""


def usable(room: NodeRoom) -> bool:
    """Return True if pods of jobs may be placed on the node now."""
    return room.node.ready and room.node.agent_ready and not room.node.cordoned


def cluster_topology(keys: Sequence[str], rooms: Rooms) -> Topology:
    """Return the topology of all nodes."""
    return topology(keys, {name: room.node.labels for name, room in rooms.items()})


def candidates(
    rooms: Rooms,
    found: Topology,
    specs: Mapping[str, Mapping[str, Any]],
    avoid: frozenset[str],
    *,
    empty: bool,
) -> list[Room]:
    """Return the nodes for pods with these specs (by name of the class), except the nodes in `avoid`.

    With `empty`, return them as if no pod ran on them: what the cluster could hold at best.
    """
    listed = []
    for name in sorted(rooms):
        room = rooms[name]
        if name in avoid or not (usable(room) or (empty and room.node.agent_ready)):
            continue
        classes = frozenset(
            one for one, spec in specs.items() if may_run(spec, name, room.node.labels, room.node.taints)
        )
        if classes:
            free = room.node.allocatable if empty else room.free
            listed.append(Room(name, found.path(name), free, classes))
    return listed


def with_pods(rooms: Rooms, planned: Iterable[tuple[str, Amounts]]) -> Rooms:
    """Return the nodes with the room that is left after more pods, given as node and requests."""
    left: dict[str, dict[str, int]] = {}
    for node, requests in planned:
        if node in rooms:
            subtract(left.setdefault(node, dict(rooms[node].free)), requests)
    return {**rooms, **{node: replace(rooms[node], free=free) for node, free in left.items()}}


def unknown_keys(keys: Sequence[str], rooms: Rooms) -> list[str]:
    """Return the topology keys that no node has as a label."""
    return [key for key in keys if not any(key in room.node.labels for room in rooms.values())]
