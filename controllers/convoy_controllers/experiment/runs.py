"""Follows the job of one run, from its creation to its figures."""

from __future__ import annotations

from typing import Any

from convoy_controllers.experiment import outcomes
from convoy_controllers.experiment.arms import Run
from convoy_controllers.experiment.children import RESOURCES, load_job, max_name, run_job
from convoy_controllers.experiment.deadline import deadline
from convoy_controllers.experiment.draft import Draft
from convoy_controllers.experiment.names import load_name, run_name
from convoy_controllers.experiment.observed import ChildJob
from convoy_controllers.experiment.outcomes import Readings
from convoy_controllers.experiment.steps import BUSY_SECONDS
from convoy_controllers.resources import TRAINING_JOBS
from convoy_crds.experiment_arm import ArmType
from convoy_crds.experiment_status import RunFailure, RunState, RunStatus
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason


def started(draft: Draft, run: Run) -> RunStatus:
    """Return the record of a run that starts now."""
    return RunStatus(
        name=_name(draft, run, 1),
        block=run.block.id,
        arm=run.label,
        attempt=1,
        state=RunState.PENDING,
        start_time=draft.now,
    )


def follow(draft: Draft, run: Run, record: RunStatus) -> None:
    """Create the job of a run that has not ended, or record its state and its end."""
    job = job_of(draft, record)
    if job is None and record.uid:
        if record.uid in draft.observed.busy:
            draft.requeue(BUSY_SECONDS)
        elif record.attempt >= draft.spec.max_attempts:
            reason, limit = Reasons.JOB_DISAPPEARED, draft.spec.max_attempts
            fail(draft, record, reason, job=record.name, limit=limit)
        else:
            _try_again(draft, run, record)
            job = job_of(draft, record)
    if record.ended:
        return
    if job is not None:
        record.uid, record.state = job.uid, RunState.RUNNING
        if run.arm.type is ArmType.SERVING_JOB:
            _follow_load(draft, run, record, job)
        elif job.ended:
            _finish(draft, record, job, Readings(status=job.status, result=job.result))
    elif not record.uid and draft.may_start and draft.places > 0:
        draft.places -= 1
        draft.create(RESOURCES[run.arm.type], run_job(draft.experiment, run, record, draft.observed.engines))
    if not record.ended:
        _enforce_deadline(draft, record)


def job_of(draft: Draft, record: RunStatus) -> ChildJob | None:
    """Return the job of a run's current attempt; None if it does not exist."""
    return draft.job(record.name, record.uid)


def occupies(draft: Draft, record: RunStatus) -> bool:
    """Return True if a run uses one of the places of `spec.parallelism`: until its pods have ended."""
    job = job_of(draft, record)
    if record.uid and record.uid in draft.observed.busy:
        return True
    return not record.ended if job is None else not job.ended


def fail(draft: Draft, record: RunStatus, reason: Reason, **facts: Any) -> None:
    """End a run with a failure, and report it."""
    end(draft, record, outcomes.failure(record.arm, reason, **facts))
    why = record.failure.message if record.failure is not None else ""
    message = Reasons.BLOCK_FAILED.format(block=record.block, arm=record.arm, why=why)
    draft.event(Reasons.BLOCK_FAILED, message)


def end(draft: Draft, record: RunStatus, failure: RunFailure) -> None:
    """End a run that has no figures."""
    record.state, record.failure, record.completion_time = RunState.FAILED, failure, draft.now


def _name(draft: Draft, run: Run, attempt: int) -> str:
    return run_name(draft.name, draft.plan_hash, run.name, attempt, max_name(run.arm))


def _try_again(draft: Draft, run: Run, record: RunStatus) -> None:
    record.attempt += 1
    record.name, record.uid, record.state = _name(draft, run, record.attempt), "", RunState.PENDING


def _follow_load(draft: Draft, run: Run, record: RunStatus, server: ChildJob) -> None:
    """Create the job that sends the requests once the server is available, or record its end."""
    name = load_name(record.name)
    load = draft.job(name, record.load_uid)
    if record.load_uid and load is None:
        fail(draft, record, Reasons.LOAD_DISAPPEARED, job=name)
    elif load is not None:
        record.load_uid = load.uid
        if load.ended:
            _finish(draft, record, load, Readings(status=server.status, load=load.result))
    elif server.halted:
        fail(draft, record, Reasons.SERVER_FAILED, job=server.name, why=server.halted)
    elif server.available and draft.may_start:
        draft.create(TRAINING_JOBS, load_job(draft.experiment, run, record))


def _finish(draft: Draft, record: RunStatus, job: ChildJob, readings: Readings) -> None:
    """Record the end of a run. `job`: the job whose end is the end of the run."""
    if not job.succeeded:
        fail(draft, record, Reasons.JOB_FAILED, job=job.name, why=job.why)
        return
    missing = outcomes.missing(draft.spec.outcomes, readings)
    if missing is not None:
        why = outcomes.why_missing(missing, readings)
        fail(draft, record, Reasons.NO_VALUE, outcome=missing.name, why=why)
        return
    record.figures = outcomes.figures(draft.spec.outcomes, record.arm, readings)
    if record.fault is None:  # Otherwise the agent has measured it.
        record.achieved = outcomes.measured(job.result.get("achieved"))
    record.state, record.completion_time = RunState.SUCCEEDED, draft.now


def _enforce_deadline(draft: Draft, record: RunStatus) -> None:
    end, seconds = deadline(draft, record), draft.spec.run_deadline_seconds
    if end is None:
        return  # The queue changes the job when it admits it.
    left = (end - draft.exact).total_seconds()
    if left <= 0:
        refusal = None if record.uid else draft.observed.refused.get(record.name)
        job = record.name if refusal is None else f"{record.name} (refused: {refusal.message})"
        fail(draft, record, Reasons.RUN_DEADLINE, job=job, seconds=seconds)
    else:
        draft.requeue(left)
