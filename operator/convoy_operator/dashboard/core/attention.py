"""The table "Needs attention": problems that a person must solve, each with its object, its cause and an
action.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_status import EXPERIMENT_ENDED, ExperimentPhase
from convoy_crds.guardpolicy import BreakerState, GuardPolicy
from convoy_crds.meta import Condition
from convoy_crds.nodehealth import NodeHealth, State
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.serving_summaries import is_unwanted
from convoy_crds.servingjob import ServingJob
from convoy_crds.summaries import NOT_RECONCILED, WARNING_REASONS
from convoy_crds.terms import LABEL_EXPERIMENT, ConditionType
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Phase
from convoy_operator.dashboard.core import serving_jobs
from convoy_operator.dashboard.core.formatting import (
    ago,
    cluster_link,
    experiment_link,
    job_link,
    node_link,
    reason_text,
    serving_link,
    shortened,
)
from convoy_operator.dashboard.core.jobs import ours, why
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

STUCK = timedelta(minutes=10)
"""Time for which a job may be starting, suspending or being deleted before it needs attention."""
_COMING_UP = frozenset({Phase.PENDING, Phase.STARTING, Phase.RESTARTING})
_OUT_OF_SERVICE = frozenset({State.QUARANTINED, State.DRAINING, State.REPAIRING, State.CONDEMNED})
_SERVING_PROBLEMS = {
    ConditionType.VALID: ("ServingJob invalid", Tone.BAD),
    ConditionType.AVAILABLE: ("Too few replicas", Tone.BAD),
    ConditionType.PROGRESSING: ("Rollout halted", Tone.WARN),
    ConditionType.DEGRADED: ("Replica faulty", Tone.WARN),
    ConditionType.MODEL_READY: ("Model not ready", Tone.WARN),
    ConditionType.CHECKPOINTING: ("Saved states at risk", Tone.WARN),
    ConditionType.SLO_MET: ("Objectives missed", Tone.WARN),
    ConditionType.STRAGGLER_DETECTED: ("Replica slow", Tone.WARN),
}
"""Name and tone of the problem that a condition of a ServingJob reports."""
_SUSPENDED_PROBLEMS: Mapping[str, str] = {
    Reasons.SUSPENDED_UNSAVED.name: "Suspended without saving",
    Reasons.QUEUE_INACTIVE.name: "Queue inactive",
}
"""Name of the problem of a suspended job, by reason."""
_EXPERIMENT_PROBLEMS: Mapping[str, str] = {
    ExperimentPhase.FAILED: "Experiment failed",
    ExperimentPhase.INVALID: "Experiment invalid",
}
COLUMNS = (
    Column("Problem", badge=True),
    Column("Where", link=True),
    Column("Since", number=True),
    Column("Why", wide=True),
    Column("What to do", wide=True),
)


@dataclass(frozen=True, slots=True)
class Concern:
    """A problem that does not resolve itself."""

    key: str
    what: str
    tone: Tone
    where: str
    href: str
    since: datetime | None
    why: str
    advice: str


def of_job(parsed: ParsedObject[TrainingJob], now: datetime) -> Iterator[Concern]:
    """Yield the problems of a job."""
    job = parsed.model
    if job is None:
        advice = "correct the manifest and apply it again"
        yield _concern(parsed, "Job unreadable", Tone.BAD, None, parsed.parse_error, advice)
        return
    found = _phase_concern(parsed, job, now)
    if found is not None:
        yield found
    if job.metadata.deletion_timestamp is None and job.status.phase not in TERMINAL:
        yield from _condition_concerns(parsed, job)


def _concern(
    parsed: ParsedObject[TrainingJob],
    what: str,
    tone: Tone,
    since: datetime | None,
    reason: str,
    advice: str = "",
) -> Concern:
    where = f"{parsed.namespace}/{parsed.name}"
    return Concern(
        f"job/{where}/{what}",
        what,
        tone,
        where,
        job_link(parsed.namespace, parsed.name),
        since,
        reason,
        advice or f"run: {_why_command(parsed)}",
    )


def _why_command(parsed: ParsedObject[TrainingJob]) -> str:
    return f"convoy why {parsed.name} -n {parsed.namespace}"


def _phase_concern(parsed: ParsedObject[TrainingJob], job: TrainingJob, now: datetime) -> Concern | None:
    """Return the problem that the job's phase or its deletion shows; None if they show none."""
    status, leaves = job.status, job.metadata.deletion_timestamp
    reason = reason_text(status.reason, status.message, status.conditions)
    created = job.metadata.creation_timestamp

    def is_overdue(since: datetime | None) -> bool:
        return since is not None and now - since >= STUCK

    if leaves is not None:
        advice = f"check its finalizers: kubectl -n {parsed.namespace} get trainingjob {parsed.name} -o yaml"
        late = is_overdue(leaves)
        return _concern(parsed, "Deletion stuck", Tone.WARN, leaves, why(job), advice) if late else None
    if status.phase is Phase.FAILED:
        if LABEL_EXPERIMENT in job.metadata.labels:
            return None  # A failed run is a result of its Experiment, which shows it.
        advice = f"run: {_why_command(parsed)}; fix the cause and create the job again"
        return _concern(parsed, "Job failed", Tone.BAD, status.completion_time, reason, advice)
    if not ours(job):
        # Another controller manages the job. Only that controller knows how long each phase may take.
        return None
    since = _not_running_since(job)
    if status.phase is None and is_overdue(created):
        return _concern(
            parsed, "Job stuck", Tone.BAD, created, NOT_RECONCILED, "check that the operator is running"
        )
    if status.phase in _COMING_UP and (status.reason in WARNING_REASONS or is_overdue(since or created)):
        return _concern(parsed, "Job stuck", Tone.WARN, since or created, reason)
    if status.phase is Phase.SUSPENDING and is_overdue(since):
        return _concern(parsed, "Suspension stuck", Tone.WARN, since, reason)
    if status.phase is Phase.SUSPENDED and status.reason in WARNING_REASONS:
        what = _SUSPENDED_PROBLEMS.get(status.reason, "Job held up")
        return _concern(parsed, what, Tone.WARN, None, reason)
    return None


def _condition_concerns(parsed: ParsedObject[TrainingJob], job: TrainingJob) -> Iterator[Concern]:
    for condition in job.status.conditions:
        since = condition.last_transition_time
        if (
            condition.type == ConditionType.CHECKPOINTING
            and condition.status == "False"
            and condition.reason in WARNING_REASONS
        ):
            reason = f"{condition.reason}: {condition.message}"
            yield _concern(parsed, "Checkpoints at risk", Tone.WARN, since, reason)
        if condition.type == ConditionType.INDEPENDENT_READY and condition.status == "False":
            reason = f"{condition.reason}: {condition.message}"
            yield _concern(parsed, "Independent pods missing", Tone.WARN, since, reason)
        if condition.reason == Reasons.GANG_IGNORED.name:
            reason = f"{condition.reason}: {condition.message}"
            yield _concern(parsed, "Gangs ignored", Tone.WARN, since, reason)
        if condition.reason == Reasons.DETECTOR_DEGRADED.name:
            reason = condition.message or "the ranks' step times vary too much"
            advice = (
                "an empty straggler list is unreliable: sweep the job's nodes, or make its steps equally long"
            )
            yield _concern(parsed, "Detector blind", Tone.WARN, since, reason, advice)


def _not_running_since(job: TrainingJob) -> datetime | None:
    for condition in job.status.conditions:
        if condition.type == ConditionType.RUNNING and condition.status != "True":
            return condition.last_transition_time
    return job.status.internal.pending.since


def of_health(health: NodeHealth, current: Mapping[str, NodeHealth]) -> Concern | None:
    """Return a problem if the hardware is out of service, or would be if its policy allowed actions.

    `current` holds the NodeHealth of each node's present hardware, by node name.
    """
    status = health.status
    ref = status.node_ref
    # Hardware that is no longer in a node is listed by the name of its NodeHealth.
    node = ref.name if current.get(ref.name) is health else health.metadata.name
    if status.state not in _OUT_OF_SERVICE:
        return _observed_concern(health, node)
    advice = f"run: convoy guard why {node}"
    repair = status.repair
    if status.state is State.REPAIRING and repair.action and repair.owner in ("", "manual"):
        advice = f"{repair.action.lower()} the node by hand, then {advice}"
    elif status.state is State.CONDEMNED:
        advice = f"{advice}; replace the node, or run: convoy guard release {node} --reason ..."
    elif status.state is State.QUARANTINED:
        advice = f"{advice}; if the node is healthy, run: convoy guard release {node} --reason ..."
    return Concern(
        f"node/{health.metadata.name}",
        f"Node {status.state.lower()}",
        Tone.BAD,
        node,
        node_link(node),
        status.since,
        status.message or status.state,
        advice,
    )


def _observed_concern(health: NodeHealth, node: str) -> Concern | None:
    """Return a problem if the node would be quarantined in mode Act. In mode Observe a person must act."""
    status = health.status
    wanted = next((one for one in status.conditions if one.reason == Reasons.WOULD_ACT.name), None)
    if wanted is None or status.confirmed_at is None:
        return None
    key = f"node/{health.metadata.name}"
    advice = f"run: convoy guard why {node}; drain the node, or create a GuardPolicy with mode: Act"
    since, why = status.confirmed_at, wanted.message
    return Concern(key, "Node slow", Tone.WARN, node, node_link(node), since, why, advice)


def of_policy(policy: GuardPolicy) -> Concern | None:
    """Return a problem if the policy's breaker is not closed."""
    breaker = policy.status.breaker
    if breaker.state is BreakerState.CLOSED:
        return None
    name = policy.metadata.name
    why = f"{breaker.reason}: {breaker.message}" if breaker.message else breaker.reason or breaker.state
    advice = (
        "no more nodes are quarantined or drained; check what these nodes share, run: "
        f"kubectl describe guardpolicy {name}"
    )
    if breaker.state is BreakerState.HALF_OPEN:
        advice = (
            f"one trial is allowed (NodeHealth {breaker.trial or 'not chosen yet'}); wait for its outcome"
        )
    tone = Tone.BAD if breaker.state is BreakerState.OPEN else Tone.WARN
    what = "Breaker open" if breaker.state is BreakerState.OPEN else "Breaker half open"
    link = cluster_link("guardpolicies", name)
    return Concern(f"policy/{name}", what, tone, f"GuardPolicy {name}", link, breaker.since, why, advice)


def of_store(store: CheckpointStore) -> Concern | None:
    """Return a problem if jobs cannot commit checkpoints to the store."""
    ready: Condition | None = next(
        (one for one in store.status.conditions if one.type == ConditionType.READY), None
    )
    if ready is not None and ready.status == "True":
        return None
    name = store.metadata.name
    why = f"{ready.reason}: {ready.message}" if ready else "no agent has tested the store yet"
    since = ready.last_transition_time if ready else store.metadata.creation_timestamp
    advice = f"checkpoints may exist in memory only; run: kubectl describe checkpointstore {name}"
    link, where = cluster_link("checkpointstores", name), f"CheckpointStore {name}"
    return Concern(f"store/{name}", "Store not ready", Tone.BAD, where, link, since, why, advice)


def of_server(parsed: ParsedObject[ServingJob], now: datetime) -> Iterator[Concern]:
    """Yield the problems of a ServingJob: the condition that needs attention first, and what to do."""
    job, where = parsed.model, f"{parsed.namespace}/{parsed.name}"

    def concern(what: str, tone: Tone, since: datetime | None, reason: str, advice: str = "") -> Concern:
        link = serving_link(parsed.namespace, parsed.name)
        run = advice or f"run: convoy why servingjob/{parsed.name} -n {parsed.namespace}"
        return Concern(f"serving/{where}/{what}", what, tone, where, link, since, reason, run)

    if job is None:
        advice = "correct the manifest and apply it again"
        yield concern("ServingJob unreadable", Tone.BAD, None, parsed.parse_error, advice)
        return
    leaves, created = job.metadata.deletion_timestamp, job.metadata.creation_timestamp
    state = serving_jobs.state(job)
    if leaves is not None:
        if now - leaves >= STUCK:
            advice = (
                f"check its finalizers: kubectl -n {parsed.namespace} get servingjob {parsed.name} -o yaml"
            )
            yield concern("Deletion stuck", Tone.WARN, leaves, serving_jobs.why(job), advice)
        return
    if state == serving_jobs.NEW:
        if created is not None and now - created >= STUCK:
            advice = "check that the operator is running"
            yield concern("ServingJob stuck", Tone.BAD, created, NOT_RECONCILED, advice)
        return
    for condition in job.status.conditions:
        if not is_unwanted(job, condition) or condition.reason not in WARNING_REASONS:
            continue
        what, tone = _SERVING_PROBLEMS.get(condition.type, ("ServingJob faulty", Tone.WARN))
        reason = f"{condition.reason}: {condition.message}"
        yield concern(what, tone, condition.last_transition_time, reason)


def of_jobs(
    jobs: Iterable[ParsedObject[TrainingJob]], servers: Iterable[ParsedObject[ServingJob]], now: datetime
) -> list[Concern]:
    """Return the problems of all TrainingJobs and ServingJobs."""
    found = [concern for parsed in jobs for concern in of_job(parsed, now)]
    return found + [concern for parsed in servers for concern in of_server(parsed, now)]


def of_experiments(experiments: Iterable[ParsedObject[Experiment]]) -> Iterator[Concern]:
    """Yield the problems of Experiments: they have failed, are invalid, or wait for a person."""
    for parsed in experiments:
        where = f"{parsed.namespace}/{parsed.name}"
        link = experiment_link(parsed.namespace, parsed.name)
        found = parsed.model
        if found is None:
            advice = "correct the manifest and create it again"
            key = f"experiment/{where}"
            what = "Experiment unreadable"
            yield Concern(key, what, Tone.BAD, where, link, None, parsed.parse_error, advice)
            continue
        status = found.status
        what = _EXPERIMENT_PROBLEMS.get(status.phase or "", "")
        tone = Tone.BAD
        if not what and status.reason in WARNING_REASONS and status.phase not in EXPERIMENT_ENDED:
            what, tone = "Experiment held up", Tone.WARN
        if what and found.metadata.deletion_timestamp is None:
            reason = reason_text(status.reason, status.message, status.conditions)
            advice = f"run: convoy experiment status {parsed.name} -n {parsed.namespace}"
            since = status.completion_time
            yield Concern(f"experiment/{where}/{what}", what, tone, where, link, since, reason, advice)


def gather(
    of_all_jobs: Iterable[Concern],
    healths: Iterable[ParsedObject[NodeHealth]],
    policies: Iterable[ParsedObject[GuardPolicy]],
    stores: Iterable[ParsedObject[CheckpointStore]],
    current: Mapping[str, NodeHealth],
) -> list[Concern]:
    """Return all problems: errors before warnings, each newest first. `current` holds the NodeHealth of
    each node's present hardware, by node name.
    """
    others: list[Concern | None] = [of_health(one.model, current) for one in healths if one.model]
    others += [of_policy(one.model) for one in policies if one.model]
    others += [of_store(one.model) for one in stores if one.model]
    found = [*of_all_jobs, *(concern for concern in others if concern is not None)]
    return sorted(found, key=lambda one: (one.tone is not Tone.BAD, -_stamp(one.since), one.key))


def _stamp(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0


def rows(concerns: Iterable[Concern], now: datetime) -> list[Row]:
    """Return the problems as table rows."""
    return [
        Row(
            one.key,
            (
                Cell(one.what, one.tone),
                Cell(one.where, href=one.href),
                Cell(ago(one.since, now), order=-_stamp(one.since)),
                Cell(shortened(one.why)),
                Cell(one.advice),
            ),
        )
        for one in concerns
    ]
