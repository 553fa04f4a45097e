"""The room on the nodes of a simulated cluster, as its scheduler and its operator see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from convoy_controllers.cached import Node as CachedNode
from convoy_controllers.placement import rooms
from convoy_controllers.placement.eligible import matches, may_run
from convoy_controllers.placement.requests import PODS, Amounts, copies_that_fit, subtract
from convoy_controllers.simulate.api import Api, Node
from convoy_controllers.views import ENDED_PHASES, PodView
from convoy_crds.terms import ANNOTATION_PLANNED_NODE, LABEL_AGENT_READY

UNLIMITED = 10**15
"""Amount of a resource that a node does not limit, in thousandths of the resource's unit."""


class NodeRoom:
    """The free resources of each node, in one run of the scheduler."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._labelled = any(node.labels for node in api.nodes.values())
        """False if the cluster simulates no labels. Selectors of pods are then ignored."""
        running = [pod for pod in api.pods.values() if pod.node and pod.phase not in ENDED_PHASES]
        self._pods = Counter(pod.node for pod in running)
        self._free = {node.name: dict(allocatable(node)) for node in api.nodes.values() if schedulable(node)}
        for pod in running:
            if pod.node in self._free:
                subtract(self._free[pod.node], pod.requests)

    def best(self, pod: PodView) -> str | None:
        """Return the node that the scheduler prefers for a pod; None if no node has room."""
        spec = self._api.specs.get(pod.uid, {})
        fit = [name for name, free in self._free.items() if _fits(free, pod) and self._admits(spec, name)]
        return min(fit, key=lambda name: (-self._score(spec, name), self._pods[name], name), default=None)

    def add(self, node: str, pod: PodView) -> None:
        """Count a pod on a node."""
        self._pods[node] += 1
        subtract(self._free[node], pod.requests)

    def give_back(self, node: str, pod: PodView) -> None:
        """Undo `add`."""
        self._pods[node] -= 1
        subtract(self._free[node], {name: -amount for name, amount in pod.requests.items()})

    def _admits(self, spec: Mapping[str, Any], name: str) -> bool:
        return not self._labelled or may_run(spec, name, node_labels(self._api.nodes[name]), ())

    def _score(self, spec: Mapping[str, Any], name: str) -> int:
        """Return the sum of the weights of the pod's node preferences that the node meets."""
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        labels = node_labels(self._api.nodes[name]) if preferred else {}
        return sum(int(term["weight"]) for term in preferred if matches(term["preference"], name, labels))


def operator_rooms(
    nodes: Iterable[Node], pods: Iterable[PodView], creating: Mapping[str, tuple[str, Amounts]]
) -> rooms.Rooms:
    """Return the nodes with the room on them as the operator counts it. A pod without a node counts on the
    node that was chosen for it. `creating`: chosen node and requests of the pods that are being created, by
    name of the pod.
    """
    used: dict[str, dict[str, int]] = {}
    taken = dict(creating)
    for pod in pods:
        if pod.phase not in ENDED_PHASES:
            taken[pod.name] = pod.node or pod.annotations.get(ANNOTATION_PLANNED_NODE, ""), pod.requests
    for node, requests in taken.values():
        there = used.setdefault(node, {})
        for name, amount in requests.items():
            there[name] = there.get(name, 0) + amount
    found = {}
    for one in nodes:
        free = dict(allocatable(one))
        for name in {name for _, requests in taken.values() for name in requests}:
            free.setdefault(name, UNLIMITED)
        subtract(free, used.get(one.name, {}))
        found[one.name] = rooms.NodeRoom(cached(one), free)
    return found


def cached(node: Node) -> CachedNode:
    """Return a node as the operator caches it."""
    return CachedNode(
        node.name,
        node.name,
        0,
        node.agent_ready,
        node.ready,
        node.cordoned,
        node_labels(node),
        allocatable=allocatable(node),
    )


def allocatable(node: Node) -> dict[str, int]:
    """Return what pods may request on a node that has no pods."""
    return {**node.resources, PODS: node.capacity * 1000}


def node_labels(node: Node) -> Mapping[str, str]:
    """Return the labels of a node, with the agent-ready label."""
    return {**node.labels, LABEL_AGENT_READY: "true"} if node.agent_ready else node.labels


def schedulable(node: Node) -> bool:
    """Return True if the node is Ready, not cordoned, and has the agent-ready label that workers require."""
    return node.ready and not node.cordoned and node.agent_ready


def _fits(free: Amounts, pod: PodView) -> bool:
    limited = {name: amount for name, amount in pod.requests.items() if name in free}
    return copies_that_fit(free, limited or {PODS: 1000}) > 0
