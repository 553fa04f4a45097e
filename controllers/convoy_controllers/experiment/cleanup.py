"""Deletes jobs that the experiment no longer needs. Names decide which ones: a job whose name belongs to no
current attempt is deleted, and its result is refused. So is a job without the label of the plan.
"""

from __future__ import annotations

from collections.abc import Collection

from convoy_controllers.experiment import runs, steps
from convoy_controllers.experiment.draft import Draft
from convoy_controllers.experiment.names import load_name
from convoy_controllers.experiment.observed import ChildJob
from convoy_crds.experiment_status import RunStatus
from convoy_crds.reasons.catalogue import Reasons

MAX_KEPT = 8
"""Maximum number of failed jobs that are kept for their logs while the experiment runs."""
MAX_STALE = 256


def finished_runs(draft: Draft) -> None:
    """Delete the jobs of runs whose ends are in the status, except the newest failed ones. Drop the records
    of runs that have neither a job nor an open block.
    """
    internal, jobs = draft.status.internal, draft.observed.jobs
    internal.kept = [name for name in internal.kept if name in jobs]
    for record in draft.status.runs:
        job = runs.job_of(draft, record)
        load = jobs.get(load_name(record.name))
        if record.ended and load is not None:
            _retire(draft, load)
        if record.ended and job is not None:
            _retire(draft, job)
        if record.ended and record.uid in draft.observed.busy:
            draft.requeue(steps.BUSY_SECONDS)
    for name in internal.kept[:-MAX_KEPT]:
        draft.delete(jobs[name])
    done = {one.id for one in draft.status.blocks}
    draft.status.runs = [
        one for one in draft.status.runs if _is_needed(draft, one) or not _is_closed(draft, one, done)
    ]


def replaced_attempts(draft: Draft) -> None:
    """Delete jobs that belong to no current attempt, and count the results that are refused."""
    internal, jobs = draft.status.internal, draft.observed.jobs
    current = {one.name: one.uid for one in draft.status.runs}
    current |= {load_name(one.name): one.load_uid for one in draft.status.runs}
    current |= {steps.name_of(draft, one): one.uid for one in internal.steps}
    internal.stale = [uid for uid in internal.stale if any(job.uid == uid for job in jobs.values())]
    for job in jobs.values():
        uid = current.get(job.name)
        if uid == job.uid or (uid == "" and draft.belongs(job)) or job.name in internal.kept:
            continue
        if job.ended and job.uid not in internal.stale and len(internal.stale) < MAX_STALE:
            internal.stale.append(job.uid)
            draft.status.stale_results += 1
            draft.event(Reasons.STALE_RESULT, Reasons.STALE_RESULT.format(job=job.name))
        draft.delete(job)


def all_runs(draft: Draft) -> None:
    """Delete the jobs of all runs, and those that were kept. The jobs of steps stay."""
    named = {steps.name_of(draft, one) for one in draft.status.internal.steps}
    draft.status.runs, draft.status.internal.kept, draft.status.internal.stale = [], [], []
    for job in draft.observed.jobs.values():
        if job.name not in named:
            draft.delete(job)


def _retire(draft: Draft, job: ChildJob) -> None:
    """Delete the job of a run that has ended. A failed job is kept for its logs."""
    kept = draft.status.internal.kept
    if not job.ended or job.succeeded:
        draft.delete(job)
    elif job.name not in kept:
        kept.append(job.name)


def _is_needed(draft: Draft, record: RunStatus) -> bool:
    """Return True if a record still names a job that is being deleted, or pods that still run."""
    names = {record.name, load_name(record.name)} - set(draft.status.internal.kept)
    return bool(names & draft.observed.jobs.keys()) or record.uid in draft.observed.busy


def _is_closed(draft: Draft, record: RunStatus, done: Collection[int]) -> bool:
    """Return True if no block waits for the run."""
    return record.block in done or (record.ended and bool(draft.status.internal.stopped))
