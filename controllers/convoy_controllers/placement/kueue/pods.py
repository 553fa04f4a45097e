"""The fields that a pod gets from the admission of its Workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from convoy_controllers.placement.kueue.admission import PodSetAdmission
from convoy_controllers.placement.kueue.names import (
    ANNOTATION_WORKLOAD,
    LABEL_POD_SET,
    LABEL_QUEUE,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
    TOPOLOGY_UNCONSTRAINED,
)
from convoy_controllers.placement.kueue.topology import Domain
from convoy_crds.terms import ANNOTATION_QUEUE_DOMAIN

Raw = Mapping[str, Any]


class Conflict(ValueError):
    """A field has two values: one in the pod's template, another one from the queue."""


def admitted(
    pod: Mapping[str, Any],
    workload: Raw,
    pod_set: str,
    own: PodSetAdmission,
    flavors: Iterable[Raw],
    domain: Domain | None,
) -> dict[str, Any]:
    """Return a pod with the fields by which it uses the quota of its Workload.

    `flavors`: specs of the podSet's ResourceFlavors. `domain`: the pod's place; None without topology-aware
    scheduling. Raises Conflict if the template has another value for a field.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    labels = {
        name: value for name, value in (metadata.get("labels") or {}).items() if name != LABEL_QUEUE
    } | {LABEL_POD_SET: pod_set}
    annotations = {**(metadata.get("annotations") or {}), ANNOTATION_WORKLOAD: workload["metadata"]["name"]}
    selector = dict(spec.get("nodeSelector") or {})
    tolerations = list(spec.get("tolerations") or ())
    for flavor in flavors:
        _merge(selector, flavor.get("nodeLabels"), "nodeSelector")
        _extend(tolerations, flavor.get("tolerations"))
    for update in own.updates:
        _merge(labels, update.get("labels"), "labels")
        _merge(annotations, update.get("annotations"), "annotations")
        _merge(selector, update.get("nodeSelector"), "nodeSelector")
        _extend(tolerations, update.get("tolerations"))
    if own.places is not None and domain is not None:
        _merge(selector, own.places.selector(domain), "nodeSelector")
        annotations |= _topology(workload, pod_set)
        annotations[ANNOTATION_QUEUE_DOMAIN] = domain.key
    placed = {**spec, "nodeSelector": selector}
    if tolerations:
        placed["tolerations"] = tolerations
    return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}, "spec": placed}


def _topology(workload: Raw, pod_set: str) -> dict[str, str]:
    """Return the annotation by which Kueue counts the pod as placed by its own topology."""
    sets = (workload.get("spec") or {}).get("podSets") or ()
    request = next((one.get("topologyRequest") for one in sets if one.get("name") == pod_set), None) or {}
    if level := request.get("required"):
        return {TOPOLOGY_REQUIRED: str(level)}
    if level := request.get("preferred"):
        return {TOPOLOGY_PREFERRED: str(level)}
    return {TOPOLOGY_UNCONSTRAINED: "true"}


def _merge(known: dict[str, str], more: Raw | None, field: str) -> None:
    for name, value in (more or {}).items():
        if known.setdefault(name, value) != value:
            raise Conflict(f"{field} {name} is {known[name]!r} in the template and {value!r} in the queue")


def _extend(known: list[Any], more: Iterable[Any] | None) -> None:
    known += [one for one in more or () if one not in known]
