"""The controller of Experiments: its plans, and the changes that queue an experiment."""

from __future__ import annotations

from collections.abc import Hashable

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import Check, Create, Delete
from convoy_controllers.controller import Controller, Makes, Validity, by_field, by_owner, every
from convoy_controllers.experiment.observe import observe
from convoy_controllers.experiment.plan import plan
from convoy_controllers.resources import (
    CHECKPOINT_STORES,
    ENGINES,
    EXPERIMENTS,
    PODS,
    SERVING_JOBS,
    TRAINING_JOBS,
)
from convoy_crds.experiment import KIND
from convoy_crds.experiment_status import EXPERIMENT_ENDED, ExperimentPhase
from convoy_crds.terms import ConditionType


def ended(experiment: CachedObject) -> bool:
    """Return True if the experiment's phase is terminal."""
    return experiment.status.get("phase") in EXPERIMENT_ENDED


def _state(job: CachedObject) -> Hashable:
    """Return the part of a job that matters to its experiment: its start, its end and its readiness."""
    metadata, status = job.raw["metadata"], job.status
    conditions = tuple(
        (one.get("type"), one.get("status"))
        for one in status.get("conditions") or ()
        if one.get("type") == ConditionType.AVAILABLE
    )
    marks = status.get("phase"), status.get("startTime"), metadata.get("deletionTimestamp")
    return job.uid, *marks, conditions


def _image(engine: CachedObject) -> Hashable:
    """Return the part of an Engine that matters to experiments."""
    return str(engine.raw.get("spec")), str(engine.status.get("conditions"))


def _usable(store: CachedObject) -> Hashable:
    """Return the part of a CheckpointStore that matters, without the time of the last probe."""
    return str(store.raw.get("spec")), str(store.status.get("conditions"))


def _phase(experiment: CachedObject) -> Hashable:
    """Return the part of an experiment that matters to those that take over its tuned parameters."""
    return experiment.uid, experiment.status.get("phase")


CONTROLLER = Controller(
    KIND,
    summary="Registers a plan, runs its arms in paired blocks as jobs, and shows the verdicts.",
    observe=observe,
    plan=plan,
    makes=(
        Makes(TRAINING_JOBS, (Check, Create, Delete)),
        Makes(SERVING_JOBS, (Check, Create, Delete)),
        Makes(PODS, (Delete,)),
    ),
    watches=(
        by_owner(KIND, TRAINING_JOBS, _state),
        by_owner(KIND, SERVING_JOBS, _state),
        by_field(KIND, CHECKPOINT_STORES, "spec.store", _usable),
        by_field(KIND, EXPERIMENTS, "spec.arms[].tuning.reuse.experiment", _phase),
        every(KIND, ENGINES, _image),
    ),
    validity=Validity(ConditionType.VALID, ExperimentPhase.PENDING.value),
    over=ended,
)
