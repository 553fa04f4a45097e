"""Follows the jobs of an Experiment's steps: the registration of the plan, the tuning, and the analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.experiment.children import step_job
from convoy_controllers.experiment.draft import Draft
from convoy_controllers.experiment.names import step_name
from convoy_controllers.experiment.observed import ChildJob
from convoy_controllers.resources import TRAINING_JOBS
from convoy_crds.experiment_status import StepRecord
from convoy_crds.reasons.catalogue import Reasons

BUSY_SECONDS = 2.0
"""Seconds until the next plan while pods of a deleted job still run. No event shows that they have ended."""


@dataclass(frozen=True, slots=True)
class StepEnd:
    """The end of a step."""

    job: str
    """Name of the step's job."""
    result: Mapping[str, Any]
    """Result that the job's program has left; empty after a failure."""
    failure: str = ""
    """Reason why the step failed; empty if it succeeded."""
    uid: str = ""


def advance(draft: Draft, step: str, engine: str, params: Mapping[str, Any]) -> StepEnd | None:
    """Create the job of a step, or follow it. Return the step's end; None until then."""
    record = record_of(draft, step)
    if record is None:
        if not draft.may_start:
            return None
        record = StepRecord(name=step, attempt=1)
        draft.status.internal.steps.append(record)
    job = current_job(draft, record)
    if job is None and record.uid:
        if record.uid in draft.observed.busy:
            draft.requeue(BUSY_SECONDS)
            return None
        if record.attempt >= draft.spec.max_attempts:
            return StepEnd(name_of(draft, record), {}, _disappeared(draft, record))
        record.attempt, record.uid = record.attempt + 1, ""
        job = current_job(draft, record)
    name = name_of(draft, record)
    if job is None:
        if draft.may_start:
            draft.create(TRAINING_JOBS, step_job(draft.experiment, name, engine, params, record.attempt))
        return None
    record.uid = job.uid
    if not job.ended:
        return None
    return StepEnd(name, job.result, "" if job.succeeded else job.why, job.uid)


def record_of(draft: Draft, step: str) -> StepRecord | None:
    """Return the record of a step; None before it starts."""
    return next((one for one in draft.status.internal.steps if one.name == step), None)


def name_of(draft: Draft, record: StepRecord) -> str:
    """Return the name of a step's job."""
    return step_name(draft.name, draft.plan_hash, record.name, record.attempt)


def current_job(draft: Draft, record: StepRecord) -> ChildJob | None:
    """Return the job of a step's current attempt; None if it does not exist."""
    return draft.job(name_of(draft, record), record.uid)


def _disappeared(draft: Draft, record: StepRecord) -> str:
    reason = Reasons.JOB_DISAPPEARED
    return reason.format(job=name_of(draft, record), limit=draft.spec.max_attempts)
