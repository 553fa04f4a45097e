"""The scheduler of a simulated cluster. It binds each pod to the node with the fewest pods.

A pod's preferred node affinity may exclude nodes. The scheduler uses these nodes only if no other node has
room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from convoy_controllers.simulate.api import Api, Node
from convoy_controllers.simulate.kernel import Kernel
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.views import ENDED_PHASES


class Scheduler:
    """Schedules pending pods after every change of pods or nodes."""

    def __init__(self, kernel: Kernel, latencies: Latencies, api: Api) -> None:
        self._kernel = kernel
        self._latencies = latencies
        self._api = api
        self._scheduled = False
        self.open = True
        """False if every pod must stay pending, as in a full cluster."""
        api.listeners.append(self._changed)

    def _changed(self, kind: str, name: str) -> None:
        if kind != "jobs":
            self.request_run()

    def request_run(self) -> None:
        """Schedule all pending pods after the latency `schedule`."""
        if not self._scheduled:
            self._scheduled = True
            self._kernel.after(self._kernel.about(self._latencies.schedule), self._schedule)

    def _schedule(self) -> None:
        self._scheduled = False
        if not self._api.up:
            return
        waiting = [pod for pod in self._api.pods.values() if _unscheduled(pod.node, pod.phase, pod.deleting)]
        used = Counter(pod.node for pod in self._api.pods.values() if pod.phase not in ENDED_PHASES)
        for pod in waiting:
            avoid = _avoided(self._api.specs.get(pod.uid, {}))
            node = self._choose(used, avoid) if self.open else None
            if node is None:
                self._api.set_pod(pod.name, pod.uid, unschedulable=self._unschedulable_message(used))
            else:
                used[node] += 1
                self._api.set_pod(pod.name, pod.uid, node=node, unschedulable="")

    def _choose(self, used: Counter[str | None], avoid: frozenset[str]) -> str | None:
        fit = [
            node
            for node in self._api.nodes.values()
            if _schedulable(node) and used[node.name] < node.capacity
        ]
        best = min(fit, key=lambda node: (node.name in avoid, used[node.name], node.name), default=None)
        return best.name if best else None

    def _unschedulable_message(self, used: Counter[str | None]) -> str:
        nodes = self._api.nodes.values()
        closed = sum(not _schedulable(node) for node in nodes)
        reasons = [f"{closed} node(s) did not match"] if closed else []
        if len(nodes) > closed:
            reasons.append(f"{len(nodes) - closed} Insufficient cpu")
        return f"0/{len(nodes)} nodes are available: {', '.join(reasons) or 'there are none'}."


def _unscheduled(node: str | None, phase: str, deleting: bool) -> bool:
    return node is None and phase == "Pending" and not deleting


def _schedulable(node: Node) -> bool:
    """Return True if the node is Ready, not cordoned, and has the agent-ready label that workers require."""
    return node.ready and not node.cordoned and node.agent_ready


def _avoided(spec: Mapping[str, Any]) -> frozenset[str]:
    """Return the nodes that the pod's preferred node affinity excludes with NotIn."""
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    return frozenset(
        value
        for term in affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ())
        for field in term["preference"].get("matchFields", ())
        if field["operator"] == "NotIn"
        for value in field["values"]
    )
