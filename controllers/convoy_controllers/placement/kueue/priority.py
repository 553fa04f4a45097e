"""The priority of a job in its queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.resources import GANG_GROUP, KUEUE_PRIORITY_CLASSES


@dataclass(frozen=True, slots=True)
class Priority:
    """A priority and the class that it comes from."""

    value: int = 0
    reference: Mapping[str, Any] = field(default_factory=dict)
    """The `priorityClassRef` of the Workload; empty without a class."""
    unknown: str = ""
    """Name of the WorkloadPriorityClass that does not exist; empty if there is no such problem."""

    @property
    def workload_class(self) -> str:
        """Return the name of the WorkloadPriorityClass; empty without one."""
        own = self.reference.get("group") == KUEUE_PRIORITY_CLASSES.group
        return str(self.reference["name"]) if own else ""


def priority(
    label: str,
    class_name: str,
    workload_classes: Iterable[CachedObject],
    pod_classes: Iterable[CachedObject],
) -> Priority:
    """Return the priority of a job.

    The WorkloadPriorityClass in the job's label decides. Without a label, the PriorityClass of the pods
    decides, and without one, the default PriorityClass of the cluster. An unknown PriorityClass counts as
    none, because the API server refuses its pods.
    """
    if label:
        found = next((one for one in workload_classes if one.name == label), None)
        if found is None:
            return Priority(unknown=label)
        return _of(found, KUEUE_PRIORITY_CLASSES.group, KUEUE_PRIORITY_CLASSES.kind)
    known = list(pod_classes)
    chosen = [one for one in known if one.name == class_name]
    if not class_name:
        chosen = [one for one in known if one.raw.get("globalDefault")]
    return _of(chosen[0], GANG_GROUP, "PriorityClass") if chosen else Priority()


def _of(found: CachedObject, group: str, kind: str) -> Priority:
    reference = {"group": group, "kind": kind, "name": found.name}
    return Priority(int(found.raw.get("value") or 0), reference)
