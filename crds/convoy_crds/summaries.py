"""Texts that summarize a job. The command line and the dashboard use the same texts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from convoy_crds.meta import Condition
from convoy_crds.reasons.catalogue import Reasons, all_reasons
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import Phase, Progress
from convoy_crds.trainingjob_straggler import Proof, Straggler

WARNING_REASONS = frozenset(reason.name for reason in all_reasons() if reason.warning)
"""Names of the reasons that are warnings for the user."""
NOT_RECONCILED = (
    "no operator has reconciled this object; check that one runs: "
    "kubectl get pods -A -l app.kubernetes.io/name=convoy"
)
"""Message for an object without a status."""
WANTED = frozenset({Phase.SUCCEEDED, Phase.SUSPENDING, Phase.SUSPENDED})
"""Phases in which the job does not run, as its owner intends."""
_BAD_WHEN_TRUE = frozenset(
    {
        ConditionType.FAILED,
        ConditionType.RESTARTING,
        ConditionType.STRAGGLER_DETECTED,
        ConditionType.METRICS_DROPPED,
        ConditionType.ADVICE,
        ConditionType.RESULT_REFUSED,
        ConditionType.STOPPED_EARLY,
    }
)


def shorten_list(names: Sequence[str], most: int) -> str:
    """Return the names as a text such as `a, b and 3 more`, which contains at most `most` names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def age(since: datetime | None, now: datetime) -> str:
    """Return the time since `since` as kubectl shows an age, such as `42s`, `7m`, `3h` or `2d`. Return a
    dash if `since` is None.
    """
    if since is None:
        return "-"
    seconds = max(0, int((now - since).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def step(job: TrainingJob) -> str:
    """Return the progress of the training, such as `120/1000`. Return a dash if it is unknown."""
    progress = job.status.progress
    if not progress:
        return "-"
    return f"{progress.step}/{progress.total_steps}" if progress.total_steps else str(progress.step)


def tier_names(job: TrainingJob) -> tuple[str, ...]:
    """Return the names of the tiers that the job uses, in the order local, peer, remote. Before the operator
    has written them to the status, return those of the spec.
    """
    found = job.status.checkpoint.tiers if job.status.checkpoint else None
    if found is None:
        return job.spec.checkpoint.tiers.names
    used = {"local": True, "peer": found.copies, "remote": found.store}
    return tuple(name for name, tier in used.items() if tier)


def saves(job: TrainingJob) -> bool:
    """Return True if the job saves checkpoints, because its spec has tiers, or by default. A job with tiers
    by default does not save if its program never does.
    """
    if job.spec.checkpoint.tiers.any or job.status.saved is not None:
        return True
    never = Reasons.PROGRAM_NEVER_SAVES.name
    kind = ConditionType.CHECKPOINTING
    return bool(tier_names(job)) and not any(
        one.type == kind and one.reason == never for one in job.status.conditions
    )


def no_checkpoints(job: TrainingJob) -> str:
    """Return why a job that does not save has no checkpoints, and what that means."""
    if tier_names(job):
        return "the program does not save with Convoy, so a restart starts at step 0"
    return "spec.checkpoint.tiers is empty, so a restart starts at step 0"


def restarts_in_window(job: TrainingJob, now: datetime) -> int:
    """Return the number of counted restarts within the last `recovery.windowSeconds`."""
    return len(job.status.internal.restarts.within(job.spec.recovery.window_seconds, now))


def warning_message(job: TrainingJob) -> str:
    """Return a text about the job's problem. Return an empty text if it has no problem."""
    if job.status.phase is None:
        return NOT_RECONCILED
    return job.status.message if job.status.reason in WARNING_REASONS else ""


def is_unwanted(condition: Condition, phase: Phase | None) -> bool:
    """Return True if the condition has a value that the owner of the job does not want."""
    if condition.type == ConditionType.SUSPENDED or phase in WANTED:
        return False
    return (condition.status == "True") == (condition.type in _BAD_WHEN_TRUE)


def straggler(one: Straggler) -> str:
    """Return a text about a straggler: ranks, cause, slowdown, cost for the job, and what would prove it."""
    ranks = f"rank{'s' if len(one.ranks) > 1 else ''} {', '.join(map(str, one.ranks))}"
    who = f"{ranks} on {', '.join(one.nodes)}" if one.ranks else f"{one.place}, no rank to blame"
    lasts = "persistent" if one.persistent else "recent"
    cost = f"; costs the job {one.lost:.0%} of its time" if one.lost else ""
    unproven = one.ranks and one.proof is Proof.FEW_PEERS
    doubt = "; a suspect: 4 ranks with the same work, or a HealthSweep of the node, would prove it"
    return (
        f"{who}: {one.cause}, takes {one.slowdown:.0%} longer since step {one.since_step}, {lasts}{cost}"
        f"{doubt if unproven else ''}"
    )


def metrics(progress: Progress) -> list[str]:
    """Return a text with name and value for each of the program's metrics. The text includes the step of
    the value if it is not the latest step.
    """
    return [
        f"{one.name} {'NaN' if one.value is None else format(one.value, '.6g')}"
        + (f" at step {one.step}" if one.step != progress.step else "")
        for one in progress.metrics
    ]
