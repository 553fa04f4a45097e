"""The gangs of the scheduler-plugins project: PodGroup in `scheduling.x-k8s.io`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_controllers.placement.gangs.backend import Backend, Gang, GangState, pod_group
from convoy_controllers.placement.gangs.quantities import quantities
from convoy_controllers.resources import COSCHEDULING_POD_GROUPS, Resource
from convoy_crds.placement import GangBackend

LABEL = "scheduling.x-k8s.io/pod-group"
SCHEDULER = "scheduler-plugins-scheduler"
"""Name of the scheduler in the project's own chart."""
_PLACED: Mapping[str, bool | None] = {"Running": True, "Finished": True, "Failed": True, "Scheduling": False}


def manifest(gang: Gang, resource: Resource) -> dict[str, Any]:
    """Return the PodGroup of a gang."""
    return pod_group(resource, gang, {"minMember": gang.least, "minResources": quantities(gang.requests)})


def member(pod: Mapping[str, Any], gang: Gang, role: str) -> dict[str, Any]:
    """Return a pod of the gang."""
    labels = {**pod["metadata"].get("labels", {}), LABEL: gang.name}
    return {
        **pod,
        "metadata": {**pod["metadata"], "labels": labels},
        "spec": {"schedulerName": SCHEDULER, **pod["spec"]},
    }


def state(group: Mapping[str, Any]) -> GangState:
    """Return the state of a PodGroup. Its phase stays empty without the project's own controller."""
    phase = str((group.get("status") or {}).get("phase") or "")
    return GangState(_PLACED.get(phase), f"phase {phase}" if phase else "")


BACKEND = Backend(
    GangBackend.COSCHEDULING,
    (COSCHEDULING_POD_GROUPS,),
    "scheduling.x-k8s.io/v1alpha1 (PodGroup)",
    "install the scheduler-plugins project with its Coscheduling plugin",
    manifest,
    member,
    state,
    SCHEDULER,
    reports=False,
    holds_nodes=True,
)
