"""Sets the conditions of a ServingJob, and the reason that `kubectl get` shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from convoy_controllers.servingjob import restarts, rollout
from convoy_controllers.servingjob.draft import Draft
from convoy_controllers.servingjob.groups import Group, slots
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.pods import ACTIVATORS
from convoy_controllers.servingjob.rollout import Budget, Unit
from convoy_controllers.workers import waiting
from convoy_controllers.workers.violation import Violation
from convoy_crds.reasons.catalogue import Reasons, all_reasons
from convoy_crds.servingjob import ServingJob, ServingRole
from convoy_crds.servingjob_status import Traffic
from convoy_crds.terms import ROLE_ACTIVATOR, ConditionType

RECOVERED = 0.95
"""Share of its limit below which a figure that has exceeded the limit is within it again. A figure near its
limit would otherwise change the condition all the time.
"""
_BY_NAME = {reason.name: reason for reason in all_reasons()}


@dataclass(frozen=True, slots=True)
class Rolling:
    """The state of the rollout, for the condition Progressing."""

    revision: str
    desired: int
    updated: int
    """Number of available replicas of the revision."""
    old: int
    """Number of replicas of other revisions."""
    active: bool
    """True if the revision does not run in all replicas yet."""
    paused: bool
    expired: bool
    """True if the rollout made no progress before its deadline."""
    failed: bool
    """True if a replica of the revision failed before one was available."""
    serving: int
    """Number of ready replicas of other revisions."""
    why: str
    """Cause of the delay; empty if none is known."""

    @property
    def halted(self) -> bool:
        """Return True if the rollout must not replace further replicas."""
        return self.active and (self.expired or self.failed)


def set_valid(draft: Draft, wrong: Violation | None) -> None:
    """Set the Valid condition."""
    reason = wrong.reason if wrong else Reasons.ACCEPTED
    draft.condition(ConditionType.VALID, wrong is None, reason, wrong.message if wrong else reason.message)


def set_progressing(draft: Draft, seen: Rolling) -> None:
    """Set the Progressing condition."""
    facts = {"revision": seen.revision, "old": seen.old, "job": draft.observed.job.metadata.name}
    holds: bool | None = True
    if not seen.active:
        reason = Reasons.ROLLOUT_COMPLETE
        message = reason.format(revision=seen.revision, pinned=_pinned(draft.observed.job, seen.revision))
    elif seen.paused:
        holds, reason = None, Reasons.ROLLOUT_PAUSED
        message = reason.format(**facts)
    elif seen.halted:
        holds = False
        reason = Reasons.REVISION_FAILED if seen.failed else Reasons.PROGRESS_DEADLINE
        kept = f"{seen.serving} older replicas keep serving" if seen.serving else "No older replica is ready"
        seconds = draft.observed.job.spec.rollout.progress_deadline_seconds
        why = (seen.why or "No replica reports an error").rstrip(".")
        message = reason.format(seconds=seconds, kept=kept, why=why, **facts)
    else:
        reason = Reasons.ROLLING_OUT
        more = f": {seen.why}" if seen.why else ""
        message = reason.format(updated=seen.updated, desired=seen.desired, more=more, **facts)
    draft.condition(ConditionType.PROGRESSING, holds, reason, message)


def _pinned(job: ServingJob, revision: str) -> str:
    """Return a note that changes of the spec have no effect now; empty if `revision` is not pinned."""
    if job.spec.rollout.revision != revision:
        return ""
    name = job.metadata.name
    return (
        ", because spec.rollout.revision pins it: other changes of the spec take effect when that field is "
        f"empty (convoy rollout unpin {name})"
    )


def set_available(draft: Draft, groups: Mapping[str, Sequence[Group]], why: str) -> None:
    """Set the Available condition. `why` is the cause of missing replicas; empty if none is known."""
    spec = draft.observed.job.spec
    ready = desired = 0
    for role in spec.roles:
        wanted = draft.observed.desired(role.name)
        there = sum(one.ready for one in groups.get(role.name, ())) or _in_place_of(draft, role.name, groups)
        ready, desired = ready + there, desired + wanted
        least = least_ready(rollout.budget(spec.rollout, _owed(role, wanted)))
        if there < least:
            reason = Reasons.MINIMUM_REPLICAS_UNAVAILABLE
            cause = why or "the others are starting"
            facts = {"role": role.name, "ready": there, "desired": wanted, "minimum": least}
            message = reason.format(why=cause, **facts)
            draft.condition(ConditionType.AVAILABLE, False, reason, message)
            return
    if desired == 0:
        _set_available_at_zero(draft, groups, why)
        return
    reason = Reasons.SERVING
    draft.condition(ConditionType.AVAILABLE, True, reason, reason.format(ready=ready, desired=desired))


def _set_available_at_zero(draft: Draft, groups: Mapping[str, Sequence[Group]], why: str) -> None:
    """Set the Available condition of a job with 0 replicas. If the job has activators, the Service must lead
    to a ready pod: to one of them, or to the replica that stays until one is ready.
    """
    spec = draft.observed.job.spec
    holding = sum(one.ready for one in groups.get(ROLE_ACTIVATOR, ()))
    front = ROLE_ACTIVATOR if draft.observed.front == ACTIVATORS else spec.serving_role
    waits = front == ROLE_ACTIVATOR or spec.scales_to_zero
    if waits and not any(one.ready for one in groups.get(front, ())):
        reason = Reasons.MINIMUM_REPLICAS_UNAVAILABLE
        cause = why or "the activators are starting"
        facts = {"role": ROLE_ACTIVATOR, "ready": 0, "desired": len(groups.get(ROLE_ACTIVATOR, ()))}
        message = reason.format(why=cause, minimum=1, **facts)
        draft.condition(ConditionType.AVAILABLE, False, reason, message)
        return
    none = Reasons.SCALED_TO_ZERO
    more = "; activators hold the requests that arrive" if holding else ""
    draft.condition(ConditionType.AVAILABLE, True, none, f"{none.message}{more}")


def _in_place_of(draft: Draft, role: str, groups: Mapping[str, Sequence[Group]]) -> int:
    """Return the number of ready replicas that serve until a role that the job did not have before does:
    those of the roles that the spec lacks.
    """
    current = next(
        (one for one in draft.observed.revisions if one.name == draft.status.current_revision), None
    )
    if current is None or current.spec.role(role) is not None:
        return 0
    named = {ROLE_ACTIVATOR, *(one.name for one in draft.observed.job.spec.roles)}
    return sum(one.ready for name, found in groups.items() if name not in named for one in found)


def _owed(role: ServingRole, desired: int) -> int:
    """Return the number of replicas that the owner of the job counts on. The others, which the autoscaler
    adds to its minimum, may still be starting.
    """
    decides = role.scaling is not None and role.scaling.decides
    return min(desired, role.scaling.min_replicas) if role.scaling and decides else desired


def least_ready(limits: Budget) -> int:
    """Return the number of replicas below which a role is not available: what a rollout must leave, but at
    least one.
    """
    return max(limits.minimum, min(1, limits.desired))


def set_degraded(draft: Draft, found: Violation | None) -> None:
    """Set the Degraded condition. `found` is the gravest fault; None if no replica is faulty."""
    reason = found.reason if found else Reasons.REPLICAS_HEALTHY
    message = found.message if found else reason.message
    draft.condition(ConditionType.DEGRADED, found is not None, reason, message)


def set_model(draft: Draft, problem: Violation | None) -> None:
    """Set the ModelReady condition, or remove it if the spec names no model."""
    source, chosen = draft.observed.job.spec.model, draft.status.model
    if source is None:
        draft.drop(ConditionType.MODEL_READY)
        return
    if problem is not None:
        draft.condition(ConditionType.MODEL_READY, False, problem.reason, problem.message)
    elif source.volume is not None:
        reason = Reasons.MODEL_IN_VOLUME
        message = reason.format(claim=source.volume.claim_name, path=source.volume.path or "/")
        draft.condition(ConditionType.MODEL_READY, True, reason, message)
    elif chosen is not None:
        reason = Reasons.MODEL_CHOSEN
        message = reason.format(step=chosen.step, job=chosen.job or chosen.uid, store=chosen.store)
        draft.condition(ConditionType.MODEL_READY, True, reason, message)


def set_objectives(draft: Draft) -> None:
    """Set the SLOMet condition, or remove it if the spec has no objectives."""
    slo = draft.observed.job.spec.slo
    if slo is None:
        draft.drop(ConditionType.SLO_MET)
        return
    found, shown = draft.observed.traffic, draft.status.traffic or Traffic()
    p95 = 1000 * found.p95 if found and found.p95 else shown.p95_ms
    ttft = 1000 * found.ttft if found and found.ttft else shown.ttft_ms
    pairs = (("p95Ms", slo.p95_ms, p95), ("ttftMs", slo.ttft_ms, ttft))
    measured = [
        (name, limit, value) for name, limit, value in pairs if limit is not None and value is not None
    ]
    if not measured:
        unknown = Reasons.SLO_UNKNOWN
        draft.condition(ConditionType.SLO_MET, None, unknown, unknown.message)
        return
    before = next((one for one in draft.status.conditions if one.type == ConditionType.SLO_MET), None)
    least = RECOVERED if before is not None and before.status == "False" else 1.0
    missed = [name for name, limit, value in measured if value > least * limit]
    # The figures themselves stand in status.traffic. In the message they would cost a write for each change.
    names = [f"spec.slo.{name}" for name in missed or [name for name, _, _ in measured]]
    figures = f"{' and '.join(names)} {'exceeded' if missed else 'met'}"
    reason = Reasons.SLO_MISSED if missed else Reasons.SLO_MET
    message = reason.format(figures=figures, job=draft.observed.job.metadata.name)
    draft.condition(ConditionType.SLO_MET, not missed, reason, message)


def set_stragglers(draft: Draft, groups: Iterable[Group]) -> None:
    """Set the StragglerDetected condition, or remove it if no replica is slow against its peers. It stays
    while the operator does not know the replicas' requests.
    """
    traffic, kind = draft.observed.traffic, ConditionType.STRAGGLER_DETECTED
    if traffic is None:
        return
    slow = {one.pod: one for one in traffic.slow}
    found = [(group.name, pod) for group in groups for pod in group.pods.values() if pod.uid in slow]
    if not found:
        draft.drop(kind)
        return
    name, pod = max(found, key=lambda pair: slow[pair[1].uid].slowdown)
    worst, reason = slow[pod.uid], Reasons.SLOW_REPLICA
    before = next((one for one in draft.status.conditions if one.type == kind), None)
    if before is not None and before.message.startswith(f"replica {name} on node {pod.node} "):
        return  # The slowdown varies, and each change of the message would cost a write.
    doubt = "" if worst.proven else ". With fewer than 4 replicas at like load this is only a suspicion"
    message = reason.format(
        replica=name, node=pod.node, slowdown=f"{worst.slowdown:.0%}", doubt=doubt, pod=pod.name
    )
    draft.condition(kind, True, reason, message)


def gravest(observed: Observed, groups: Iterable[Group]) -> Violation | None:
    """Return the gravest fault of the replicas: a failed replica, then one that restarts, then one whose pods
    do not start. Return None if there is none.
    """
    every = list(groups)
    for one in every:
        if one.record.failed:
            return failure(observed, one)
    for one in every:
        if one.record.error and not one.ready:
            return Violation(
                _BY_NAME.get(one.record.reason, Reasons.RANK_FAILED),
                f"replica {one.name}: {one.record.error}",
            )
    found = not_starting(observed, every)
    return found if found and found.reason.warning else None


def failure(observed: Observed, group: Group) -> Violation:
    """Return the reason and message for a replica that has used up its restarts."""
    recovery, reason = observed.job.spec.recovery, Reasons.REPLICA_FAILED
    until = restarts.rests_until(group.record, recovery)
    count, limit = len(group.record.times), recovery.max_restarts
    cause = "no restart can heal its fault"
    if count > limit:
        window = recovery.window_seconds
        cause = f"it had {count} faults within {window} s, more than spec.recovery.maxRestarts={limit}"
    message = reason.format(
        replica=group.name,
        cause=cause,
        until=f"{until:%Y-%m-%d %H:%M:%SZ}",
        why=group.record.error,
    )
    return Violation(reason, message)


def not_starting(observed: Observed, groups: Iterable[Group]) -> Violation | None:
    """Return the reason why pods of these replicas are not up; None if all are up."""
    name = observed.job.metadata.name
    layout = [
        slot for one in groups if not one.record.membership for slot in slots(name, one.record, one.size)
    ]
    if not layout:
        return None
    return waiting.why(observed, layout, {pod.name: pod for pod in observed.own_pods}, observed.slots)


def cause(observed: Observed, groups: Sequence[Group], now: datetime) -> str:
    """Return the cause of a delay among these replicas: the first error of one of them, or the reason why a
    pod does not start. Return an empty text if there is none.
    """
    for one in sorted(groups, key=lambda group: group.record.failed is None):
        if one.record.error and not one.ready:
            return f"replica {one.name}: {one.record.error}"
    found = not_starting(observed, groups)
    return found.message if found else ""


def unplaced_surge(units: Iterable[Unit], target: str) -> bool:
    """Return True if no node can hold a new replica of the target revision."""
    return any(one.unplaced and one.revision == target for one in units)
