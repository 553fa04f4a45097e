"""Kubernetes' own gangs: PodGroup in `scheduling.k8s.io` (KEP-4671).

A PodGroup alone is enough, because the scheduler never reads Workload objects. The versions of 1.36 and 1.37
have different fields. Convoy sets only fields that both have, and `disruptionMode`, whose type differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_controllers.placement.gangs.backend import Backend, Gang, GangState, condition_of, pod_group
from convoy_controllers.resources import NATIVE_POD_GROUPS, Resource
from convoy_crds.placement import GangBackend

_CONDITIONS = ("PodGroupInitiallyScheduled", "PodGroupScheduled")
"""Condition of a placed PodGroup in 1.37 and in 1.36."""
_WHOLE: Mapping[str, Any] = {"v1alpha2": "PodGroup"}
"""Value of `disruptionMode` with which the scheduler preempts a gang only as a whole, by version."""
_WHOLE_DEFAULT: Mapping[str, Any] = {"all": {}}


def manifest(gang: Gang, resource: Resource) -> dict[str, Any]:
    """Return the PodGroup of a gang."""
    spec: dict[str, Any] = {
        "schedulingPolicy": {"gang": {"minCount": gang.least}},
    }
    if not gang.elastic:
        spec["disruptionMode"] = _WHOLE.get(resource.version, _WHOLE_DEFAULT)
    if gang.priority_class:
        spec["priorityClassName"] = gang.priority_class
    if gang.topology_key:
        spec["schedulingConstraints"] = {"topology": [{"key": gang.topology_key}]}
    return pod_group(resource, gang, spec)


def member(pod: Mapping[str, Any], gang: Gang, role: str) -> dict[str, Any]:
    """Return a pod of the gang."""
    return {**pod, "spec": {**pod["spec"], "schedulingGroup": {"podGroupName": gang.name}}}


def state(group: Mapping[str, Any]) -> GangState:
    """Return the state of a PodGroup. The API server drops `schedulingConstraints` if its feature gate is
    off.
    """
    constraints = (group.get("spec") or {}).get("schedulingConstraints") or {}
    found = condition_of(group, _CONDITIONS)
    return GangState(
        placed={"True": True, "False": False}.get(str(found.get("status"))),
        message=str(found.get("message") or ""),
        chooses_domain=bool(constraints.get("topology")),
    )


BACKEND = Backend(
    GangBackend.NATIVE,
    NATIVE_POD_GROUPS,
    "scheduling.k8s.io (PodGroup)",
    "use Kubernetes 1.36 or later with the feature gates GenericWorkload and, in 1.36, GangScheduling, and "
    "with --runtime-config for the version (docs/placement.md)",
    manifest,
    member,
    state,
)
