"""Parts of a pod that Convoy cannot work without, and that admission may take off. Pure.

Policies and webhooks may change a pod as they like: its images, resources, environment, order of containers.
A pod without the names and owner by which Convoy finds it would be made again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from convoy_crds.terms import ANNOTATION_BORN, ANNOTATION_CONTAINER, ANNOTATION_INTENT, LABEL_INDEX, LABEL_JOB
from convoy_operator.pod_views import container_names, controller_uid

ANNOTATIONS = (ANNOTATION_INTENT, ANNOTATION_BORN, ANNOTATION_CONTAINER)


def missing_parts(requested: Mapping[str, Any], stored: Mapping[str, Any]) -> str:
    """The parts that a pod lacks as it was created, in words; empty where it has all."""
    return ", ".join([*_labels(requested, stored), *_others(requested, stored)])


def missing_labels(requested: Mapping[str, Any], stored: Mapping[str, Any]) -> str:
    """The labels that an existing pod lacks for the operator's watch to see it; empty where it has all."""
    return ", ".join(_labels(requested, stored))


def _labels(requested: Mapping[str, Any], stored: Mapping[str, Any]) -> Iterator[str]:
    wanted, labels = requested["metadata"].get("labels") or {}, stored["metadata"].get("labels") or {}
    for label in (LABEL_JOB, LABEL_INDEX):
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
