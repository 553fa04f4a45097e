"""Decides what happens to pods on lost nodes. At first they only stop being ready; later they are replaced.

A node is lost if its agent is silent and a second witness confirms the loss (`trainingjob.nodes`). Silence
that may be due to the operator's own network does not count. Kubernetes itself sets the pods of a dead node
to not ready only after 40 to 50 s.

To take traffic off a node costs little and is undone by the kubelet if the node returns. A replacement
costs a load of the model. So a node gets a few more seconds before its pods are replaced. They need no
fencing, because replicas share no writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from convoy_controllers.children import Apply
from convoy_controllers.liveness.lost_nodes import why_lost
from convoy_controllers.resources import PODS
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.views import PodView

REPLACE_SECONDS = 15.0
"""Seconds of an agent's silence after which the pods of its lost node are replaced."""


def lost(observed: Observed) -> dict[str, str]:
    """Return the reason why each lost node is lost, by name of the node."""
    return {name: why for name, node in observed.nodes.items() if (why := why_lost(node, ()))}


def replaceable(observed: Observed, lost_nodes: Mapping[str, str]) -> dict[str, str]:
    """Return the lost nodes whose pods are replaced now."""
    nodes = observed.nodes
    return {
        name: why
        for name, why in lost_nodes.items()
        if not nodes[name].exists or nodes[name].silent_seconds >= REPLACE_SECONDS
    }


def wait_seconds(observed: Observed, lost_nodes: Mapping[str, str]) -> float | None:
    """Return the seconds until the pods of the next lost node are replaced; None if none waits."""
    waits = [
        REPLACE_SECONDS - observed.nodes[name].silent_seconds
        for name in lost_nodes
        if observed.nodes[name].exists and observed.nodes[name].silent_seconds < REPLACE_SECONDS
    ]
    return min(waits, default=None)


def not_ready(pods: Iterable[PodView], lost_nodes: Mapping[str, str], now: datetime) -> tuple[Apply, ...]:
    """Return the children that set the ready pods on lost nodes to not ready."""
    return tuple(
        _condition(pod, lost_nodes[pod.node], now)
        for pod in pods
        if pod.ready and pod.node and pod.node in lost_nodes
    )


def _condition(pod: PodView, why: str, now: datetime) -> Apply:
    at = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "NodeLost",
        "message": f"node {pod.node} is lost: {why}",
        "lastTransitionTime": at,
    }
    status = {"conditions": [condition]}
    return Apply(PODS, {"metadata": {"name": pod.name}, "status": status}, subresource="status")
