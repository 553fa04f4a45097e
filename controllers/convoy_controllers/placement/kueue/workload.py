"""The Workload that asks Kueue for a job's quota."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convoy_controllers.placement.kueue.names import (
    LABEL_JOB_UID,
    LABEL_MAX_SECONDS,
    LABEL_PRIORITY,
    PROVISIONING_PREFIX,
)
from convoy_controllers.placement.kueue.priority import Priority
from convoy_controllers.resources import KUEUE_WORKLOADS
from convoy_crds.placement import Pack

MAX_NAME = 63
"""Maximum length of the name, because Kueue writes it into labels."""
_CONTAINER_FIELDS = ("name", "image", "resources", "restartPolicy")
_SPEC_FIELDS = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "priorityClassName",
    "runtimeClassName",
    "overhead",
    "resources",
    "resourceClaims",
)
"""Fields of a pod on which Kueue decides. All others stay out of the Workload."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """The pods of a role, as the queue counts them."""

    name: str
    count: int
    spec: Mapping[str, Any]
    """Spec of one pod."""
    min_count: int = 0
    """Pods with which the role can run; 0 if it needs all."""
    pack: Pack = Pack.NONE
    level: str = ""
    """Node label of the topology that Kueue must heed; empty if it need not."""

    def body(self, *, partial: bool) -> dict[str, Any]:
        """Return the podSet. `partial`: True if Kueue may admit fewer pods of it."""
        found: dict[str, Any] = {
            "name": self.name,
            "count": self.count,
            "template": {"spec": template_spec(self.spec)},
        }
        if partial:
            found["minCount"] = self.min_count
        if self.level and self.pack is not Pack.NONE:
            wish = "required" if self.pack is Pack.REQUIRED else "preferred"
            found["topologyRequest"] = {wish: self.level}
        return found


def template_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a pod's spec on which Kueue decides."""
    found = {name: spec[name] for name in _SPEC_FIELDS if spec.get(name)}
    for name in ("initContainers", "containers"):
        if containers := spec.get(name):
            found[name] = [
                {field: one[field] for field in _CONTAINER_FIELDS if one.get(field)} for one in containers
            ]
    return found


@dataclass(frozen=True, slots=True)
class Wishes:
    """Requests to Kueue in a job's labels and annotations, apart from queue and priority."""

    max_seconds: int = 0
    """Seconds for which the job may hold quota; 0 without a limit."""
    provisioning: Mapping[str, str] = field(default_factory=dict)
    """Annotations with parameters of the job's ProvisioningRequest."""
    wrong: str = ""
    """Description of a label with a wrong value; empty if there is none."""


def wishes(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Wishes:
    """Return what a job's labels and annotations ask of Kueue."""
    text = labels.get(LABEL_MAX_SECONDS, "")
    seconds = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    return Wishes(
        max_seconds=seconds,
        provisioning={
            name: value for name, value in annotations.items() if name.startswith(PROVISIONING_PREFIX)
        },
        wrong=f"label {LABEL_MAX_SECONDS} is {text!r}; it must be a whole number of seconds above 0"
        if text and not seconds
        else "",
    )


def partial_role(pod_sets: Iterable[PodSet]) -> str:
    """Return the podSet that gets `minCount`: the one that can do without most pods. Empty if none can.

    Kueue allows one such podSet in a Workload.
    """
    elastic = [one for one in pod_sets if 0 < one.min_count < one.count]
    return max(elastic, key=lambda one: one.count - one.min_count).name if elastic else ""


def pod_set_bodies(pod_sets: Sequence[PodSet]) -> list[dict[str, Any]]:
    """Return the `podSets` of the Workload."""
    partial = partial_role(pod_sets)
    return [one.body(partial=one.name == partial) for one in pod_sets]


def workload_name(job: str, uid: str, queue: str, pod_sets: Sequence[PodSet]) -> str:
    """Return the name of a job's Workload. A job of another shape or queue has a Workload of another name,
    because Kueue forbids most changes of a Workload with a reservation.
    """
    facts = json.dumps([uid, queue, pod_set_bodies(pod_sets)], sort_keys=True)
    digest = hashlib.sha256(facts.encode()).hexdigest()[:6]
    prefix = "trainingjob-"
    return f"{prefix}{job[: MAX_NAME - len(prefix) - 7].rstrip('-.')}-{digest}"


def manifest(
    name: str,
    queue: str,
    pod_sets: Sequence[PodSet],
    priority: Priority,
    owner: Mapping[str, Any],
    wanted: Wishes = Wishes(),
) -> dict[str, Any]:
    """Return the Workload. `spec.active` is absent, because it belongs to administrators and to Kueue."""
    spec: dict[str, Any] = {
        "queueName": queue,
        "priority": priority.value,
        "podSets": pod_set_bodies(pod_sets),
    }
    if priority.reference:
        spec["priorityClassRef"] = dict(priority.reference)
    if wanted.max_seconds:
        spec["maximumExecutionTimeSeconds"] = wanted.max_seconds
    labels = {LABEL_JOB_UID: str(owner["uid"])}
    if priority.workload_class:
        labels[LABEL_PRIORITY] = priority.workload_class
    metadata: dict[str, Any] = {"name": name, "labels": labels, "ownerReferences": [dict(owner)]}
    if wanted.provisioning:
        metadata["annotations"] = dict(wanted.provisioning)
    return {
        "apiVersion": KUEUE_WORKLOADS.api_version,
        "kind": KUEUE_WORKLOADS.kind,
        "metadata": metadata,
        "spec": spec,
    }
