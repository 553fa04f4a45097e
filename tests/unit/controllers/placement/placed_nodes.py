"""Nodes and pods for tests of `place`, and a job that sees these nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from convoy_controllers.cached import Node
from convoy_controllers.placement.rooms import NodeRoom, Rooms
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.observed import Observed
from convoy_crds.terms import LABEL_ROLE

RACK = "rack"
CORE = {"containers": [{"name": "worker", "resources": {"requests": {"cpu": "1"}}}]}


def node_rooms(racks: int, per_rack: int, free: int = 1) -> dict[str, NodeRoom]:
    """Return racks of nodes with room for `free` pods of one core on each node."""
    return {
        node.name: NodeRoom(node, {"cpu": 1000 * free, "pods": 110_000})
        for rack in range(racks)
        for number in range(per_rack)
        for node in [_node(f"n{rack}-{number}", f"r{rack}")]
    }


def _node(name: str, rack: str) -> Node:
    labels = {RACK: rack, "convoy.dev/agent-ready": "true"}
    allocatable = {"cpu": 8000, "pods": 110_000}
    return Node(name, f"uid-{name}", 1, agent_ready=True, ready=True, labels=labels, allocatable=allocatable)


def body(number: int, spec: Mapping[str, Any] = CORE) -> dict[str, Any]:
    """Return the manifest of a pod of role w."""
    metadata = {"name": f"job-w-{number}", "namespace": "default", "labels": {LABEL_ROLE: "w"}}
    return {"metadata": metadata, "spec": dict(spec)}


def affinity(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod's node affinity; empty without one."""
    found: dict[str, Any] = manifest["spec"].get("affinity", {}).get("nodeAffinity", {})
    return found


def restricted(manifest: Mapping[str, Any]) -> bool:
    """Return True if a pod may run in some racks only."""
    found = affinity(manifest).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    expressions = (one for term in found.get("nodeSelectorTerms", ()) for one in term["matchExpressions"])
    return any(one["key"] == RACK for one in expressions)


class PlacedJob(ToyCluster):
    """A toy cluster whose job has topology keys and sees nodes with room."""

    def __init__(self, rooms: Rooms, template: Mapping[str, Any] = CORE, **placement: Any) -> None:
        roles = [{"name": "worker", "replicas": 2, "template": {"spec": dict(template)}}]
        spec = {"roles": roles, "placement": {"topologyKeys": [RACK], **placement}}
        super().__init__(make_job(**spec), make_engine())
        self.rooms: Rooms | None = rooms

    def observed(self) -> Observed:
        return replace(super().observed(), rooms=self.rooms)
