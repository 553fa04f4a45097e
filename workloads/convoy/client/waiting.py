"""When a job has come to where somebody waits for it. Pure."""

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
"""That a TrainingJob may have."""


def check_target(until: str) -> None:
    """ValueError when there is neither a phase nor a condition of that name."""
    names = {*map(str, Phase), *CONDITIONS}
    if until not in names:
        hint = suggestion(until, names)
        raise ValueError(f"there is neither a phase nor a condition {until!r}{hint}")


def has_reached(job: TrainingJob, until: str) -> bool:
    """Whether the job is in the phase `until`, or has the condition `until`.

    A status that is of an earlier spec says nothing yet, unless the job has ended. Raises JobFailed or
    JobEnded when it has ended otherwise.
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
    """Where a job stands, in a sentence."""
    if job is None:
        return "it was not seen"
    status = job.status
    if status.phase is None:
        return "no operator has looked at it yet"
    step = f" at step {status.progress.step}" if status.progress else ""
    why = f" ({status.reason}): {status.message}" if status.reason else ""
    behind = status.observed_generation < job.metadata.generation
    late = "; the operator has not seen its newest spec yet" if behind else ""
    return f"it is {status.phase}{step}{why}{late}"
