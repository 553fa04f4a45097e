"""Checks whether a job has reached a phase or condition. Pure."""

from __future__ import annotations

from convoy.client.errors import JobEnded, JobFailed
from convoy_crds.suggest import suggestion
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Phase

CONDITIONS = frozenset(
    {
        ConditionType.VALID,
        ConditionType.SCHEDULED,
        ConditionType.RUNNING,
        ConditionType.RESTARTING,
        ConditionType.SUSPENDED,
        ConditionType.COMPLETE,
        ConditionType.FAILED,
        ConditionType.CHECKPOINTING,
        ConditionType.STRAGGLER_DETECTED,
        ConditionType.METRICS_DROPPED,
    }
)
"""The conditions that a TrainingJob may have."""


def check_target(until: str) -> None:
    """Raise ValueError if `until` is neither a phase nor a condition of a TrainingJob."""
    names = {*map(str, Phase), *CONDITIONS}
    if until not in names:
        hint = suggestion(until, names)
        raise ValueError(f"{until!r} is neither a phase nor a condition of a TrainingJob{hint}")


def has_reached(job: TrainingJob, until: str) -> bool:
    """Return True if the job has the phase `until`, or if its condition `until` is True.

    While the operator has not yet reconciled the newest spec, the status belongs to an earlier spec. Then
    return False, unless the job has ended. Raises JobFailed or JobEnded if the job has ended in another
    way.
    """
    status = job.status
    ended = status.phase in TERMINAL
    if status.observed_generation < job.metadata.generation and not ended:
        return False
    if status.phase == until or any(one.type == until and one.status == "True" for one in status.conditions):
        return True
    if status.phase == Phase.FAILED:
        raise JobFailed(job)
    if ended:
        raise JobEnded(f"{job.metadata.name} has ended ({status.phase}) and will not be {until}", job)
    return False


def describe(job: TrainingJob | None) -> str:
    """Return the job's state as a sentence."""
    if job is None:
        return "the job could not be read"
    status = job.status
    if status.phase is None:
        return "no operator has reconciled it yet"
    step = f" at step {status.progress.step}" if status.progress else ""
    why = f" ({status.reason}): {status.message}" if status.reason else ""
    behind = status.observed_generation < job.metadata.generation
    late = "; the operator has not reconciled its newest spec yet" if behind else ""
    return f"it is {status.phase}{step}{why}{late}"
