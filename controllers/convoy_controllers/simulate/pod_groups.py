"""The PodGroups of Kubernetes' own gangs in a simulated cluster, as its scheduler reads and reports them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_controllers.placement.gangs.backend import condition_of
from convoy_controllers.resources import NATIVE_POD_GROUPS, Resource
from convoy_controllers.simulate.api import Api
from convoy_controllers.views import ENDED_PHASES, PodView

_CONDITION: Mapping[str, str] = {"v1alpha2": "PodGroupScheduled"}
"""Type of a PodGroup's condition, by version of its API."""
_CONDITION_DEFAULT = "PodGroupInitiallyScheduled"


class PodGroups:
    """The PodGroups that the operator has applied."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def name(self, pod: PodView) -> str:
        """Return the name of a pod's PodGroup; empty if the pod belongs to no gang."""
        spec = self._api.specs.get(pod.uid, {})
        return str((spec.get("schedulingGroup") or {}).get("podGroupName") or "")

    def least(self, group: str) -> int | None:
        """Return the number of pods without which none is bound; None if the PodGroup does not exist."""
        found = self._found(group)
        return int(found[1]["spec"]["schedulingPolicy"]["gang"]["minCount"]) if found else None

    def bound(self, group: str) -> int:
        """Return the number of pods with a node that have not ended."""
        return sum(
            bool(pod.node) and pod.phase not in ENDED_PHASES and self.name(pod) == group
            for pod in self._api.pods.values()
        )

    def report(self, group: str, *, placed: bool) -> None:
        """Set the condition of a PodGroup. A scheduler never takes back that a gang was placed."""
        found = self._found(group)
        if found is None:
            return
        resource, _ = found
        kind = _CONDITION.get(resource.version, _CONDITION_DEFAULT)
        status = self._api.object_statuses.get((resource, group), {})
        if condition_of({"status": status}, (kind,)).get("status") == "True":
            return
        reason = "Scheduled" if placed else "Unschedulable"
        condition = {"type": kind, "status": str(placed), "reason": reason, "message": ""}
        self._api.set_object_status(resource, group, {"conditions": [condition]})

    def _found(self, group: str) -> tuple[Resource, Mapping[str, Any]] | None:
        for resource in NATIVE_POD_GROUPS:
            if (body := self._api.objects.get((resource, group))) is not None:
                return resource, body
        return None
