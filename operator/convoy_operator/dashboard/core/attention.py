"""What needs a person: what is wrong, where, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.guardpolicy import BreakerState, GuardPolicy
from convoy_crds.meta import Condition
from convoy_crds.nodehealth import NodeHealth, State
from convoy_crds.telling import NEW, TROUBLE
from convoy_crds.terms import ConditionType, Reasons
from convoy_crds.trainingjob import TERMINAL, Phase, TrainingJob
from convoy_operator.dashboard.core.objects import Kept
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone
from convoy_operator.dashboard.core.words import ago, job_link, node_link, shortened

STUCK = timedelta(minutes=10)
"""A job that has not come up for so long is shown, whatever its reason."""
_COMING_UP = frozenset({Phase.PENDING, Phase.STARTING, Phase.RESTARTING})
_OUT_OF_SERVICE = frozenset({State.QUARANTINED, State.DRAINING, State.REPAIRING, State.CONDEMNED})
COLUMNS = (
    Column("What", badge=True),
    Column("Where", link=True),
    Column("Since", number=True),
    Column("Why", wide=True),
    Column("What to do", wide=True),
)


@dataclass(frozen=True, slots=True)
class Concern:
    """One thing that does not mend itself."""

    key: str
    what: str
    tone: Tone
    where: str
    href: str
    since: datetime | None
    why: str
    advice: str


def of_job(kept: Kept[TrainingJob], now: datetime) -> Iterator[Concern]:
    """What is wrong with a job."""
    where = f"{kept.namespace}/{kept.name}"
    ask = f"convoy why {kept.name} -n {kept.namespace}"

    def concern(what: str, tone: Tone, since: datetime | None, why: str, advice: str) -> Concern:
        href = job_link(kept.namespace, kept.name)
        return Concern(f"job/{where}/{what}", what, tone, where, href, since, why, advice)

    job = kept.model
    if job is None:
        yield concern("Job unreadable", Tone.BAD, None, kept.flaw, "correct the manifest and apply it again")
        return
    status = job.status
    said = f"{status.reason}: {status.message}" if status.message else status.reason
    created = job.metadata.creation_timestamp
    if status.phase is Phase.FAILED:
        advice = f"see {ask}; correct what it names and make the job anew"
        yield concern("Job failed", Tone.BAD, status.completion_time, said, advice)
    elif status.phase is None:
        if created is not None and now - created >= STUCK:
            yield concern("Job stuck", Tone.BAD, created, NEW, "see that the operator runs")
    elif status.phase in _COMING_UP:
        since = _not_running_since(job) or created
        if status.reason in TROUBLE or (since is not None and now - since >= STUCK):
            yield concern("Job stuck", Tone.WARN, since, said, f"see {ask}")
    elif status.phase is Phase.SUSPENDED and status.reason in TROUBLE:
        yield concern("Job suspended unsaved", Tone.WARN, None, said, f"see {ask}")
    if status.phase in TERMINAL:
        return
    for condition in status.conditions:
        if (
            condition.type == ConditionType.CHECKPOINTING
            and condition.status == "False"
            and condition.reason in TROUBLE
        ):
            why = f"{condition.reason}: {condition.message}"
            yield concern("Checkpoints at risk", Tone.WARN, condition.last_transition_time, why, f"see {ask}")
        if condition.reason == Reasons.DETECTOR_DEGRADED.name:
            why = condition.message or "the ranks' times scatter too much"
            advice = "do not take silence for health: sweep its nodes, or give it steps of even length"
            yield concern("Detector blind", Tone.WARN, condition.last_transition_time, why, advice)


def _not_running_since(job: TrainingJob) -> datetime | None:
    for condition in job.status.conditions:
        if condition.type == ConditionType.RUNNING and condition.status != "True":
            return condition.last_transition_time
    return job.status.pending_since


def of_health(health: NodeHealth) -> Concern | None:
    """A node that is out of service; None for one that is in it."""
    status = health.status
    if status.state not in _OUT_OF_SERVICE:
        return None
    node = status.node_ref.name or health.metadata.name
    advice = f"convoy guard why {node}"
    repair = status.repair
    if status.state is State.REPAIRING and repair.action and repair.owner in ("", "manual"):
        advice = f"somebody has to {repair.action.lower()} it; then {advice}"
    elif status.state is State.CONDEMNED:
        advice = f"{advice}; replace it, or convoy guard release {node} --reason ..."
    elif status.state is State.QUARANTINED:
        advice = f"{advice}; if it is well: convoy guard release {node} --reason ..."
    return Concern(
        f"node/{node}",
        f"Node {status.state.lower()}",
        Tone.BAD,
        node,
        node_link(node),
        status.since,
        status.message or status.state,
        advice,
    )


def of_policy(policy: GuardPolicy) -> Concern | None:
    """A breaker that is not closed; None for one that is."""
    breaker = policy.status.breaker
    if breaker.state is BreakerState.CLOSED:
        return None
    name = policy.metadata.name
    why = f"{breaker.reason}: {breaker.message}" if breaker.message else breaker.reason or breaker.state
    advice = (
        "nothing more is quarantined or drained: look at what these nodes share "
        f"(kubectl describe guardpolicy {name})"
    )
    if breaker.state is BreakerState.HALF_OPEN:
        advice = (
            f"one node is let through as a trial ({breaker.trial or 'not chosen yet'}); wait for its outcome"
        )
    tone = Tone.BAD if breaker.state is BreakerState.OPEN else Tone.WARN
    what = "Breaker open" if breaker.state is BreakerState.OPEN else "Breaker half open"
    return Concern(f"policy/{name}", what, tone, f"GuardPolicy {name}", "", breaker.since, why, advice)


def of_store(store: CheckpointStore) -> Concern | None:
    """A store that checkpoints cannot be committed to; None for one that is Ready."""
    ready: Condition | None = next(
        (one for one in store.status.conditions if one.type == ConditionType.READY), None
    )
    if ready is not None and ready.status == "True":
        return None
    name = store.metadata.name
    why = f"{ready.reason}: {ready.message}" if ready else "nobody has tried it out yet"
    since = ready.last_transition_time if ready else store.metadata.creation_timestamp
    advice = f"checkpoints may be in memory alone: kubectl describe checkpointstore {name}"
    return Concern(
        f"store/{name}", "Store not ready", Tone.BAD, f"CheckpointStore {name}", "", since, why, advice
    )


def gather(
    jobs: Iterable[Kept[TrainingJob]],
    healths: Iterable[Kept[NodeHealth]],
    policies: Iterable[Kept[GuardPolicy]],
    stores: Iterable[Kept[CheckpointStore]],
    now: datetime,
) -> list[Concern]:
    """All of it: the worst first, then the newest."""
    found = [concern for kept in jobs for concern in of_job(kept, now)]
    others: list[Concern | None] = [of_health(one.model) for one in healths if one.model]
    others += [of_policy(one.model) for one in policies if one.model]
    others += [of_store(one.model) for one in stores if one.model]
    found += [concern for concern in others if concern is not None]
    return sorted(found, key=lambda one: (one.tone is not Tone.BAD, -_stamp(one.since), one.key))


def _stamp(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0


def rows(concerns: Iterable[Concern], now: datetime) -> list[Row]:
    """As a table."""
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
            one.tone,
        )
        for one in concerns
    ]
