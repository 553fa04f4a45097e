"""The gangs of Volcano: PodGroup in `scheduling.volcano.sh`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_controllers.placement.gangs.backend import Backend, Gang, GangState, condition_of, pod_group
from convoy_controllers.placement.gangs.quantities import quantities
from convoy_controllers.resources import VOLCANO_POD_GROUPS, Resource
from convoy_crds.placement import GangBackend

ANNOTATION = "scheduling.k8s.io/group-name"
ROLE_ANNOTATION = "volcano.sh/task-spec"
SCHEDULER = "volcano"
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
"""Annotation of a job that names its Volcano Queue."""
DEFAULT_QUEUE = "default"
"""Queue that Volcano's webhook writes into a PodGroup without one."""
_PLACED: Mapping[str, bool | None] = {"Running": True, "Completed": True, "Unknown": True, "Inqueue": False}


def manifest(gang: Gang, resource: Resource) -> dict[str, Any]:
    """Return the PodGroup of a gang. Volcano alone counts the least pods of each role."""
    spec: dict[str, Any] = {
        "minMember": gang.least,
        "minTaskMember": dict(gang.least_by_role),
        "minResources": quantities(gang.requests),
    }
    if gang.priority_class:
        spec["priorityClassName"] = gang.priority_class
    if gang.queue:
        spec["queue"] = gang.queue
    return pod_group(resource, gang, spec)


def member(pod: Mapping[str, Any], gang: Gang, role: str) -> dict[str, Any]:
    """Return a pod of the gang."""
    annotations = {**pod["metadata"].get("annotations", {}), ANNOTATION: gang.name, ROLE_ANNOTATION: role}
    return {
        **pod,
        "metadata": {**pod["metadata"], "annotations": annotations},
        "spec": {"schedulerName": SCHEDULER, **pod["spec"]},
    }


def state(group: Mapping[str, Any]) -> GangState:
    """Return the state of a PodGroup."""
    phase = str((group.get("status") or {}).get("phase") or "")
    why = condition_of(group, ("Unschedulable",))
    return GangState(_PLACED.get(phase), str(why.get("message") or "") if phase != "Running" else "")


BACKEND = Backend(
    GangBackend.VOLCANO,
    (VOLCANO_POD_GROUPS,),
    "scheduling.volcano.sh/v1beta1 (PodGroup)",
    "install Volcano",
    manifest,
    member,
    state,
    SCHEDULER,
    queues=True,
)
