"""The resources that pods request on each node, kept up to date from the cached pods.

A pod without a node counts on the node that Convoy chose for it, so that two gangs are never placed into the
same room. The pods of a plan count from the moment at which the plan is made. The choice is an annotation,
which any author of pods can write. It counts only for a pod whose controller is a cached object of Convoy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from convoy_controllers.cached import CachedObject, Node, OtherPod, Pod
from convoy_controllers.placement.requests import Amounts, known_requests, subtract
from convoy_controllers.placement.rooms import NodeRoom, RoomTable
from convoy_controllers.views import ENDED_PHASES
from convoy_crds.terms import ANNOTATION_PLANNED_NODE
from convoy_operator.cache import Store

Use = tuple[str, Amounts]
"""Name of a node, and what a pod requests there."""


class NodeUsage:
    """The requests of all pods, by node."""

    def __init__(
        self, pods: Store[Pod], others: Store[OtherPod], nodes: Store[Node], owned: Callable[[Pod], bool]
    ) -> None:
        """`owned` returns True if the controller of a pod is a cached object of Convoy."""
        self._pods, self._nodes, self._owned = pods, nodes, owned
        self._used: dict[str, dict[str, int]] = {}
        self._counted: dict[str, Use] = {}
        """The requests of each counted pod and its node, by uid."""
        self._creating: dict[tuple[str, str], Use] = {}
        """The same of each pod that the operator is about to create, by namespace and name."""
        self._table = RoomTable({})
        self._dirty: set[str] = set()
        """Names of the nodes that may differ from the table."""
        pods.listen(self._pod_changed)
        others.listen(self._other_changed)
        nodes.listen(self._node_changed)

    def free(self, node: Node) -> dict[str, int]:
        """Return what pods may still request on a node. An amount may be negative."""
        left = dict(node.allocatable)
        subtract(left, self._used.get(node.name, {}))
        return left

    def rooms(self) -> RoomTable:
        """Return all nodes with the room on them. It is the same table until something changes."""
        changed, same_nodes = dict[str, NodeRoom | None](), True
        for name in self._dirty:
            node, before = self._nodes.get("", name), self._table.get(name)
            after = NodeRoom(node, self.free(node)) if node is not None else None
            same = _facts(before) == _facts(after)
            same_nodes = same_nodes and same
            if not same or (before is not None and after is not None and before.free != after.free):
                changed[name] = after
        self._dirty.clear()
        if changed:
            merged = {**self._table, **changed}
            rooms = {name: room for name, room in merged.items() if room is not None}
            self._table = RoomTable(rooms, self._table.version + 1, self._table, same_nodes=same_nodes)
        return self._table

    @contextmanager
    def creating(self, manifests: Iterable[Mapping[str, Any]]) -> Iterator[None]:
        """Count the pods of these manifests until they are created, at most until the end of the context."""
        planned = dict(one for one in map(_planned, manifests) if one is not None)
        for key, use in planned.items():
            self._creating[key] = use
            self._add(use, 1)
        try:
            yield
        finally:
            for key in planned:
                self._created(key)

    def owner_changed(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        """Count the pods of an object that is cached from now on, or no more."""
        if before is not None and after is not None and before.uid == after.uid:
            return
        for one in (before, after):
            for pod in self._pods.indexed((one.namespace, one.name)) if one is not None else ():
                self._count(pod.uid, self._use(pod))

    def _created(self, key: tuple[str, str]) -> None:
        """Stop counting a pod as one that is about to be created."""
        if key in self._creating:
            self._add(self._creating.pop(key), -1)

    def _pod_changed(self, before: Pod | None, after: Pod | None, own: bool) -> None:
        if before is None and after is not None:
            self._created((after.namespace, after.name))
        if before is not None and (after is None or after.uid != before.uid):
            self._count(before.uid, None)
        if after is not None:
            self._count(after.uid, self._use(after))

    def _other_changed(self, before: OtherPod | None, after: OtherPod | None, own: bool) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._count(before.uid, None)
        if after is not None:
            self._count(after.uid, (after.node, after.requests))

    def _node_changed(self, before: Node | None, after: Node | None, own: bool) -> None:
        self._dirty |= {one.name for one in (before, after) if one is not None}

    def _use(self, pod: Pod) -> Use | None:
        view = pod.view
        if view.phase in ENDED_PHASES:
            return None
        planned = view.annotations.get(ANNOTATION_PLANNED_NODE, "") if self._owned(pod) else ""
        return view.node or planned, view.requests

    def _count(self, uid: str, use: Use | None) -> None:
        """Count what a pod uses in place of what it has used before."""
        before = self._counted.pop(uid, None)
        use = use if use is not None and use[0] else None
        if use is not None:
            self._counted[uid] = use
        if before != use:
            for one, sign in ((before, -1), (use, 1)):
                if one is not None:
                    self._add(one, sign)

    def _add(self, use: Use, sign: int) -> None:
        node, requests = use
        used = self._used.setdefault(node, {})
        for name, amount in requests.items():
            used[name] = used.get(name, 0) + sign * amount
        if not any(used.values()):
            del self._used[node]
        self._dirty.add(node)


def _facts(room: NodeRoom | None) -> object:
    """Return the fields of a node on which placement depends, apart from the room; None without a node."""
    if room is None:
        return None
    node = room.node
    states = node.ready, node.agent_ready, node.cordoned
    return node.uid, states, dict(node.labels), node.taints, dict(node.allocatable)


def _planned(manifest: Mapping[str, Any]) -> tuple[tuple[str, str], Use] | None:
    """Return the key of a pod, its chosen node and its requests; None for an object without a chosen node."""
    metadata = manifest["metadata"]
    node = (metadata.get("annotations") or {}).get(ANNOTATION_PLANNED_NODE, "")
    if not node:
        return None
    return (metadata["namespace"], metadata["name"]), (node, known_requests(manifest["spec"]) or {})
