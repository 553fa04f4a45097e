"""A small cluster for tests of the gangs of replicas: APIs of PodGroups, racks, and the room on nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Self

from tests.unit.controllers.placement.gang_objects import PodGroups, scheduled
from tests.unit.controllers.servingjob.servers import Servers, make_server

from convoy_controllers.cached import Node
from convoy_controllers.placement.gang_state import written
from convoy_controllers.placement.rooms import NodeRoom, Rooms
from convoy_controllers.plan import Plan
from convoy_controllers.resources import Resource
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.views import PodView
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.terms import ANNOTATION_PLANNED_NODE

PAIRS = [{"name": "worker", "groupSize": 2, "engine": {"name": "lm"}}]
RACK = "rack"
REQUIRED = {"topologyKeys": [RACK], "pack": "Required"}


def with_cpu(size: int = 2, **role: Any) -> list[dict[str, Any]]:
    """A role whose pods request one core each."""
    container = {"name": "worker", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container]}}
    return [{"name": "worker", "groupSize": size, "engine": {"name": "lm"}, "template": template, **role}]


class GangServers(Servers):
    """One ServingJob on a cluster that serves APIs of PodGroups, with two racks of two nodes."""

    def __init__(self, *served: Resource, topology: bool = False, **spec: Any) -> None:
        super().__init__(make_server(**{"replicas": 1, "roles": PAIRS, **spec}))
        self.groups = PodGroups(*served, topology=topology)
        self.racks = {"node-0": "r0", "node-1": "r0", "node-2": "r1", "node-3": "r1"}
        self.cores = dict.fromkeys(self.racks, 2)
        """Number of cores of each node."""
        self.reading = False
        """True while the operator reads the pods of the cluster."""

    def rooms(self) -> Rooms | None:
        """Return the room on all nodes."""
        if self.reading:
            return None
        used = Counter(one.node or one.annotations.get(ANNOTATION_PLANNED_NODE) for one in self.pods.values())
        return {
            name: NodeRoom(
                Node(
                    name,
                    name,
                    1,
                    agent_ready=True,
                    ready=True,
                    labels={RACK: rack, "convoy.dev/agent-ready": "true"},
                    allocatable={"cpu": 1000 * self.cores[name], "pods": 110_000},
                ),
                {"cpu": 1000 * (self.cores[name] - used[name]), "pods": 110_000},
            )
            for name, rack in self.racks.items()
        }

    def observed(self) -> Observed:
        found = super().observed()
        errors = dict(found.create_errors)
        if self.groups.refuses:
            errors |= {one.name: Refusal(self.groups.refuses) for one in self.groups.applied}
        nodes = {
            name: replace(view, labels={RACK: self.racks[name], **view.labels})
            for name, view in found.nodes.items()
        }
        return replace(
            found,
            served=self.groups.served,
            gang_objects=self.groups.objects(written(self.groups.served)),
            rooms=self.rooms(),
            create_errors=errors,
            nodes=nodes,
        )

    def step(self) -> Plan:
        made = super().step()
        self.groups.carry_out(made, self.now)
        return made

    def _place(self, name: str, pod: PodView) -> None:
        planned = pod.annotations.get(ANNOTATION_PLANNED_NODE)
        super()._place(name, pod)
        if planned and self.pods[name].node and not self._dead(planned):
            self.pod(name, node=planned)
            view = self.slots[pod.uid]
            self.slots[pod.uid] = replace(view, node=planned)

    def link(self, name: str) -> str:
        """Return the PodGroup that a pod names; empty if it names none."""
        found: str = self.manifests[name]["spec"].get("schedulingGroup", {}).get("podGroupName", "")
        return found

    def group(self, number: int = 0) -> str:
        """Return the stored name of a replica's PodGroup."""
        stored = self.record(number).gang
        return stored.name if stored else ""

    def racks_of(self, number: int = 0) -> set[str]:
        """Return the racks of a replica's pods."""
        return {self.racks[pod.node or ""] for pod in self.live(group=str(number))}

    def schedule(self, phase: str = "") -> Self:
        """Let the scheduler write the condition or the phase of every PodGroup."""
        for name in self.groups.names:
            self.groups.set_status(name, {"phase": phase} if phase else scheduled())
        return self
