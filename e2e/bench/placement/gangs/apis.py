"""The PodGroup APIs of scheduler-plugins and of Volcano, as far as their schedulers read them.

The definitions are written from the projects' types (sigs.k8s.io/scheduler-plugins apis/scheduling/v1alpha1,
volcano.sh/apis scheduling/v1beta1). Neither project can be installed here.
"""

from __future__ import annotations

from typing import Any

COSCHEDULING_GROUP, COSCHEDULING_VERSION = "scheduling.x-k8s.io", "v1alpha1"
VOLCANO_GROUP, VOLCANO_VERSION = "scheduling.volcano.sh", "v1beta1"
_INT: dict[str, Any] = {"type": "integer", "format": "int32"}
_TEXT: dict[str, Any] = {"type": "string"}
_TIME: dict[str, Any] = {"type": "string", "format": "date-time"}
_QUANTITIES: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    },
}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _pod_groups(
    group: str, version: str, spec: dict[str, Any], status: dict[str, Any], subresources: dict[str, Any]
) -> dict[str, Any]:
    names = {"kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup"}
    schema = _object(spec=spec, status=status)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": subresources,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def coscheduling() -> dict[str, Any]:
    """Return the definition of scheduler-plugins' PodGroup. Its status is a subresource."""
    spec = _object(minMember={**_INT, "minimum": 1}, minResources=_QUANTITIES, scheduleTimeoutSeconds=_INT)
    status = _object(
        phase=_TEXT,
        occupiedBy=_TEXT,
        running=_INT,
        succeeded=_INT,
        failed=_INT,
        scheduleStartTime=_TIME,
    )
    return _pod_groups(COSCHEDULING_GROUP, COSCHEDULING_VERSION, spec, status, {"status": {}})


def volcano() -> dict[str, Any]:
    """Return the definition of Volcano's PodGroup. It has no status subresource."""
    spec = _object(
        minMember={**_INT, "minimum": 0},
        minTaskMember={"type": "object", "additionalProperties": _INT},
        minResources=_QUANTITIES,
        queue={**_TEXT, "default": "default"},
        priorityClassName=_TEXT,
    )
    condition = _object(
        type=_TEXT,
        status=_TEXT,
        transitionID=_TEXT,
        lastTransitionTime=_TIME,
        reason=_TEXT,
        message=_TEXT,
    )
    status = _object(
        phase=_TEXT,
        conditions={"type": "array", "items": condition},
        running=_INT,
        succeeded=_INT,
        failed=_INT,
    )
    return _pod_groups(VOLCANO_GROUP, VOLCANO_VERSION, spec, status, {})
