"""The objects of Kueue that matter to one job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.placement.kueue.admission import admission
from convoy_controllers.placement.kueue.names import LABEL_PRIORITY
from convoy_controllers.placement.kueue.priority import Priority, priority
from convoy_controllers.placement.kueue.topology import levels_of
from convoy_controllers.reader import Reader
from convoy_controllers.resources import (
    KUEUE_CLUSTER_QUEUES,
    KUEUE_FLAVORS,
    KUEUE_LOCAL_QUEUES,
    KUEUE_PRIORITY_CLASSES,
    KUEUE_TOPOLOGIES,
    KUEUE_WORKLOADS,
    PRIORITY_CLASSES,
    Resource,
)

QUEUE_SETTINGS: tuple[Resource, ...] = (
    KUEUE_LOCAL_QUEUES,
    KUEUE_CLUSTER_QUEUES,
    KUEUE_FLAVORS,
    KUEUE_TOPOLOGIES,
    KUEUE_PRIORITY_CLASSES,
    PRIORITY_CLASSES,
)
"""Objects of administrators that matter to the jobs in queues."""


@dataclass(frozen=True, slots=True)
class QueueObjects:
    """The job's Workloads, and what else its queue decides on."""

    workloads: tuple[CachedObject, ...] = ()
    """The job's Workloads. More than one exists after a change of the job's shape."""
    flavors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Specs of the ResourceFlavors that the Workloads were admitted to, by name."""
    priority: Priority = field(default_factory=Priority)
    levels: tuple[str, ...] = ()
    """Node labels of the topologies that the queue's flavors have."""


def read(
    reader: Reader, namespace: str, uid: str, queue: str, labels: Mapping[str, str], pods: str
) -> QueueObjects:
    """Return the objects of Kueue that matter to a job. `pods`: PriorityClass of the job's pods."""
    if KUEUE_WORKLOADS not in reader.served:
        return QueueObjects()
    workloads = tuple(reader.children(KUEUE_WORKLOADS, uid))
    if not queue:
        return QueueObjects(workloads)
    flavors = {one.name: one.raw.get("spec") or {} for one in reader.objects(KUEUE_FLAVORS)}
    used = {
        name
        for one in workloads
        for pod_set in admission(one.raw).pod_sets.values()
        for name in pod_set.flavors
    }
    return QueueObjects(
        workloads=workloads,
        flavors={name: flavors[name] for name in sorted(used & flavors.keys())},
        priority=priority(
            labels.get(LABEL_PRIORITY, ""),
            pods,
            reader.objects(KUEUE_PRIORITY_CLASSES),
            reader.objects(PRIORITY_CLASSES),
        ),
        levels=tuple(_levels(reader, namespace, queue, flavors)),
    )


def _levels(
    reader: Reader, namespace: str, queue: str, flavors: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    local = _spec(reader, KUEUE_LOCAL_QUEUES, queue, namespace)
    cluster = _spec(reader, KUEUE_CLUSTER_QUEUES, str(local.get("clusterQueue") or ""))
    topologies = {one.name: one.raw.get("spec") or {} for one in reader.objects(KUEUE_TOPOLOGIES)}
    return levels_of((flavors.get(name, {}) for name in _flavors_of(cluster)), topologies)


def _flavors_of(cluster_queue: Mapping[str, Any]) -> Iterable[str]:
    for group in cluster_queue.get("resourceGroups") or ():
        yield from (str(one.get("name")) for one in group.get("flavors") or ())


def _spec(reader: Reader, resource: Resource, name: str, namespace: str = "") -> Mapping[str, Any]:
    for one in reader.objects(resource):
        if (one.name, one.namespace) == (name, namespace):
            found: Mapping[str, Any] = one.raw.get("spec") or {}
            return found
    return {}
