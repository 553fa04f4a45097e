"""How a job is told of, in the same words at the command line and in the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from convoy_crds.meta import Condition
from convoy_crds.reasons.catalogue import all_reasons
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import Phase, Progress, Straggler

WARNING_REASONS = frozenset(reason.name for reason in all_reasons() if reason.warning)
"""Names of the reasons that are trouble for the user."""
NOT_RECONCILED = "no operator has looked at it: kubectl get pods -A -l app.kubernetes.io/name=convoy"
WANTED = frozenset({Phase.SUCCEEDED, Phase.SUSPENDING, Phase.SUSPENDED})
"""Phases in which a job that does not run is as its owner wants it."""
_BAD_WHEN_TRUE = frozenset(
    {
        ConditionType.FAILED,
        ConditionType.RESTARTING,
        ConditionType.STRAGGLER_DETECTED,
        ConditionType.METRICS_DROPPED,
    }
)


def shorten_list(names: Sequence[str], most: int) -> str:
    """`a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def age(since: datetime | None, now: datetime) -> str:
    """A time as kubectl shows it: `42s`, `7m`, `3h`, `2d`; a dash when unknown."""
    if since is None:
        return "-"
    seconds = max(0, int((now - since).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def step(job: TrainingJob) -> str:
    """How far the training is: `120/1000`; a dash when unknown."""
    progress = job.status.progress
    if not progress:
        return "-"
    return f"{progress.step}/{progress.total_steps}" if progress.total_steps else str(progress.step)


def restarts_in_window(job: TrainingJob, now: datetime) -> int:
    """Counted restarts within the last `recovery.windowSeconds`.

    `status.restarts.inWindow` is written at a restart alone, and grows old with it.
    """
    return len(job.status.restarts.within(job.spec.recovery.window_seconds, now))


def warning_message(job: TrainingJob) -> str:
    """What is the matter with a job; empty when nothing is."""
    if job.status.phase is None:
        return NOT_RECONCILED
    return job.status.message if job.status.reason in WARNING_REASONS else ""


def is_unwanted(condition: Condition, phase: Phase | None) -> bool:
    """Whether a condition is what the job's owner does not want it to be."""
    if condition.type == ConditionType.SUSPENDED or phase in WANTED:
        return False
    return (condition.status == "True") == (condition.type in _BAD_WHEN_TRUE)


def straggler(one: Straggler) -> str:
    """Who is slow, why, by how much and since when, and what that costs the job."""
    ranks = f"rank{'s' if len(one.ranks) > 1 else ''} {', '.join(map(str, one.ranks))}"
    who = f"{ranks} on {', '.join(one.nodes)}" if one.ranks else f"{one.place}, nobody to blame"
    lasts = "lasting" if one.persistent else "not for long yet"
    cost = f"; {one.lost:.0%} of the job's time is lost" if one.lost else ""
    return f"{who}: {one.cause}, {one.slowdown:.0%} longer since step {one.since_step}, {lasts}{cost}"


def metrics(progress: Progress) -> list[str]:
    """Return each metric of the program's own with its value, and the step where that is an earlier one."""
    return [
        f"{one.name} {'NaN' if one.value is None else format(one.value, '.6g')}"
        + (f" at step {one.step}" if one.step != progress.step else "")
        for one in progress.metrics
    ]
