"""Finds the jobs of a namespace that differ from a job only in values, for advice (T03). Pure."""

from __future__ import annotations

import itertools
from datetime import datetime

from convoy_controllers.advice.arrays import Spec, cached_shape, created_near
from convoy_controllers.cached import CachedObject
from convoy_controllers.reader import Reader
from convoy_crds.terms import LABEL_EXPERIMENT
from convoy_crds.trainingjob import KIND, TrainingJob

MAX_JOBS = 1000
"""Maximum number of jobs of the namespace that are compared."""


def names(reader: Reader, job: TrainingJob) -> tuple[str, ...]:
    """Return the names of such jobs that were created within WINDOW_SECONDS before or after the job.

    Return none if the job is not checked for it, or if an Experiment has created it.
    """
    lint, created = job.spec.lint, job.metadata.creation_timestamp
    if lint is None or "T03" in lint.ignore or created is None or LABEL_EXPERIMENT in job.metadata.labels:
        return ()
    own = reader.live(KIND)
    others = (one for one in own if one.namespace == job.metadata.namespace)
    compared = list(itertools.islice(others, MAX_JOBS))
    this = next((one for one in compared if one.uid == job.metadata.uid), None)
    if this is None:
        return ()
    shape = _shape(this)
    near = (one for one in compared if one.uid != this.uid and created_near(created, _created(one)))
    return tuple(sorted(one.name for one in near if _shape(one) == shape))


def _shape(one: CachedObject) -> str:
    return cached_shape(one.uid, one.generation, Spec(one.raw.get("spec") or {}))


def _created(one: CachedObject) -> datetime:
    return datetime.fromisoformat(one.raw["metadata"]["creationTimestamp"])
