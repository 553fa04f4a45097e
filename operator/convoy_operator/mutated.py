"""Pure functions that find required parts of a pod that admission has removed.

Policies and webhooks may change a pod's images, resources, environment and order of containers. They must
not remove the names and the owner by which Convoy finds a pod. Otherwise Convoy would create the pod again
and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from convoy_crds.terms import (
    ANNOTATION_BORN,
    ANNOTATION_CONTAINER,
    ANNOTATION_INTENT,
    LABEL_ENDPOINT,
    LABEL_GROUP,
    LABEL_INDEX,
    LABEL_JOB,
    LABEL_KIND,
    LABEL_REVISION,
    LABEL_ROLE,
)
from convoy_operator.pod_views import container_names, controller_uid

LABELS = (LABEL_JOB, LABEL_KIND, LABEL_ROLE, LABEL_GROUP, LABEL_INDEX, LABEL_REVISION, LABEL_ENDPOINT)
ANNOTATIONS = (ANNOTATION_INTENT, ANNOTATION_BORN, ANNOTATION_CONTAINER)


def missing_parts(requested: Mapping[str, Any], stored: Mapping[str, Any]) -> str:
    """Return a text that names the required parts that a created pod lacks; empty if it has all of them."""
    return ", ".join([*_labels(requested, stored), *_others(requested, stored)])


def missing_labels(requested: Mapping[str, Any], stored: Mapping[str, Any]) -> str:
    """Return a text that names the labels that an existing pod lacks, although the operator's watch needs
    them; empty if it has all of them.
    """
    return ", ".join(_labels(requested, stored))


def _labels(requested: Mapping[str, Any], stored: Mapping[str, Any]) -> Iterator[str]:
    wanted, labels = requested["metadata"].get("labels") or {}, stored["metadata"].get("labels") or {}
    for label in LABELS:
        if labels.get(label) != wanted.get(label):
            yield f"label {label}"


def _others(requested: Mapping[str, Any], stored: Mapping[str, Any]) -> Iterator[str]:
    wanted, annotations = requested["metadata"], stored["metadata"].get("annotations") or {}
    for annotation in ANNOTATIONS:
        if annotation in (wanted.get("annotations") or {}) and annotation not in annotations:
            yield f"annotation {annotation}"
    if controller_uid(stored) != controller_uid(requested):
        yield "the owner reference"
    ranks = (wanted.get("annotations") or {}).get(ANNOTATION_CONTAINER)
    if ranks and ranks not in container_names(stored):
        yield f"container {ranks}"
