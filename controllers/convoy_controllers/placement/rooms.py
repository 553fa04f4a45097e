"""The nodes of the cluster and the room on them, as placement sees them."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

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
MAX_SHARED = 256
"""Maximum number of results that one table keeps for the searches of all jobs."""

T = TypeVar("T")


class RoomTable(dict[str, NodeRoom]):
    """All nodes by name, at one version of the room on them. The table keeps what searches compute from it,
    so that several jobs share the results, and a job that waits does not search again in vain.
    """

    def __init__(
        self,
        rooms: Mapping[str, NodeRoom],
        version: int = 0,
        before: RoomTable | None = None,
        *,
        same_nodes: bool = False,
    ) -> None:
        """`before`: the table of an earlier version. `same_nodes`: True if no node differs since then, apart
        from the room on it.
        """
        super().__init__(rooms)
        self.version = version
        self.waiting = 0
        """Number of jobs that wait for room."""
        self.held: dict[Hashable, Any] = {} if before is None else before.held
        """The last result of each search in vain. All versions share this mapping."""
        self._of_nodes: dict[Hashable, Any] = before._of_nodes if before is not None and same_nodes else {}
        self._of_room: dict[Hashable, Any] = {}

    def shared(self, key: Hashable, compute: Callable[[], T], *, nodes_only: bool = False) -> T:
        """Return the result of `compute`, which this table keeps under `key`. `nodes_only`: True if the
        result does not depend on the room on the nodes.
        """
        kept = self._of_nodes if nodes_only else self._of_room
        if key not in kept:
            if len(kept) >= MAX_SHARED:
                kept.clear()
            kept[key] = compute()
        found: T = kept[key]
        return found


def shared(rooms: Rooms, key: Hashable, compute: Callable[[], T], *, nodes_only: bool = False) -> T:
    """Return the result of `compute`, from the table if `rooms` is one (see `RoomTable.shared`)."""
    return rooms.shared(key, compute, nodes_only=nodes_only) if isinstance(rooms, RoomTable) else compute()


def admission_key(spec: Mapping[str, Any]) -> str:
    """Return the fields of a pod spec that decide which nodes admit the pod (see `may_run`), as text."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return json.dumps([spec.get("nodeSelector"), required, spec.get("tolerations")], sort_keys=True)


def usable(room: NodeRoom) -> bool:
    """Return True if pods of jobs may be placed on the node now."""
    return room.node.ready and room.node.agent_ready and not room.node.cordoned


def cluster_topology(keys: Sequence[str], rooms: Rooms) -> Topology:
    """Return the topology of all nodes."""

    def compute() -> Topology:
        return topology(keys, {name: room.node.labels for name, room in rooms.items()})

    return shared(rooms, ("topology", tuple(keys)), compute, nodes_only=True)


def candidates(
    rooms: Rooms,
    found: Topology,
    specs: Mapping[str, Mapping[str, Any]],
    avoid: frozenset[str],
    *,
    empty: bool,
) -> list[Room]:
    """Return the nodes for pods with these specs (by name of the class), except the nodes in `avoid`. The
    caller must not change the list.

    With `empty`, return them as if no pod ran on them: what the cluster could hold at best.
    """

    def compute() -> list[Room]:
        admitted = {one: _admitting(rooms, spec) for one, spec in specs.items()}
        listed = []
        for name in sorted(rooms):
            room = rooms[name]
            if name in avoid or not (usable(room) or (empty and room.node.agent_ready)):
                continue
            classes = frozenset(one for one, names in admitted.items() if name in names)
            if classes:
                free = room.node.allocatable if empty else room.free
                listed.append(Room(name, found.path(name), free, classes))
        return listed

    wanted = tuple(sorted((one, admission_key(spec)) for one, spec in specs.items()))
    return shared(rooms, ("candidates", found.keys, wanted, avoid, empty), compute, nodes_only=empty)


def _admitting(rooms: Rooms, spec: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the nodes whose labels and taints admit a pod with this spec."""

    def compute() -> frozenset[str]:
        return frozenset(
            name for name, room in rooms.items() if may_run(spec, name, room.node.labels, room.node.taints)
        )

    return shared(rooms, ("admitting", admission_key(spec)), compute, nodes_only=True)


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
