"""The resources that pods request on each node, kept up to date from the cached pods.

A pod without a node counts on the node that Convoy chose for it, so that two gangs are never placed into the
same room. The pods of a plan count from the moment at which the operator begins to create them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from convoy_controllers.cached import Node, OtherPod, Pod
from convoy_controllers.placement.requests import Amounts, pod_requests, subtract
from convoy_controllers.views import ENDED_PHASES
from convoy_crds.terms import ANNOTATION_PLANNED_NODE
from convoy_operator.cache import Store


class NodeUsage:
    """The requests of all pods, by node."""

    def __init__(self, pods: Store[Pod], others: Store[OtherPod]) -> None:
        self._used: dict[str, dict[str, int]] = {}
        self._creating: dict[tuple[str, str], tuple[str, Amounts]] = {}
        """Node and requests of each pod that the operator is about to create, by namespace and name."""
        pods.listen(self._pod_changed)
        others.listen(self._other_changed)

    def free(self, node: Node) -> dict[str, int]:
        """Return what pods may still request on a node. An amount may be negative."""
        left = dict(node.allocatable)
        subtract(left, self._used.get(node.name, {}))
        return left

    @contextmanager
    def creating(self, manifests: Iterable[Mapping[str, Any]]) -> Iterator[None]:
        """Count the pods of these manifests until they are created, at most until the end of the context."""
        planned = dict(one for one in map(_planned, manifests) if one is not None)
        for key, (node, requests) in planned.items():
            self._creating[key] = node, requests
            self._add(node, requests, 1)
        try:
            yield
        finally:
            for key in planned:
                self._created(key)

    def _created(self, key: tuple[str, str]) -> None:
        """Stop counting a pod as one that is about to be created."""
        node, requests = self._creating.pop(key, ("", {}))
        self._add(node, requests, -1)

    def _pod_changed(self, before: Pod | None, after: Pod | None, own: bool) -> None:
        if before is None and after is not None:
            self._created((after.namespace, after.name))
        for pod, sign in ((before, -1), (after, 1)):
            if pod is not None and pod.view.phase not in ENDED_PHASES:
                view = pod.view
                self._add(view.node or view.annotations.get(ANNOTATION_PLANNED_NODE, ""), view.requests, sign)

    def _other_changed(self, before: OtherPod | None, after: OtherPod | None, own: bool) -> None:
        for pod, sign in ((before, -1), (after, 1)):
            if pod is not None:
                self._add(pod.node, pod.requests, sign)

    def _add(self, node: str, requests: Amounts, sign: int) -> None:
        if not node:
            return
        used = self._used.setdefault(node, {})
        for name, amount in requests.items():
            used[name] = used.get(name, 0) + sign * amount
        if not any(used.values()):
            del self._used[node]


def _planned(manifest: Mapping[str, Any]) -> tuple[tuple[str, str], tuple[str, Amounts]] | None:
    """Return the key of a pod, its chosen node and its requests; None for an object without a chosen node."""
    metadata = manifest["metadata"]
    node = (metadata.get("annotations") or {}).get(ANNOTATION_PLANNED_NODE, "")
    if not node:
        return None
    return (metadata["namespace"], metadata["name"]), (node, pod_requests(manifest["spec"]))
