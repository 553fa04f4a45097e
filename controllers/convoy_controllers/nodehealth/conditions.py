"""The conditions Qualified and Acting of a NodeHealth."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from convoy_controllers.nodehealth import evidence
from convoy_controllers.nodehealth.budget import Refusal
from convoy_controllers.nodehealth.observed import HardwareFacts
from convoy_controllers.nodehealth.record import ACCUSED, parse_duration
from convoy_crds.guardpolicy import GuardPolicy, Mode
from convoy_crds.meta import Condition
from convoy_crds.nodehealth import NodeHealthStatus, State
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import TAINT_SUSPECT, ConditionType

_MOST_JOBS = 3
_Value = Literal["True", "False", "Unknown"]


def with_conditions(
    status: NodeHealthStatus,
    facts: HardwareFacts,
    policy: GuardPolicy | None,
    refusal: Refusal | None,
    generation: int,
    now: datetime,
) -> NodeHealthStatus:
    """Return the status with its conditions Qualified and Acting updated. `generation` is the metadata
    generation that the conditions describe.
    """
    found = [
        _condition(status, ConditionType.QUALIFIED, *_qualified(status, policy), now),
        _condition(status, ConditionType.ACTING, *_acting(status, facts, policy, refusal, now), now),
    ]
    update = {"conditions": found, "observed_generation": generation}
    unchanged = (found, generation) == (status.conditions, status.observed_generation)
    return status if unchanged else status.model_copy(update=update)


def _qualified(status: NodeHealthStatus, policy: GuardPolicy | None) -> tuple[_Value, Reason, str]:
    state = status.state
    if policy is None:
        reason = Reasons.NOT_GUARDED
        return "Unknown", reason, reason.format(node=status.node_ref.name)
    if state is State.CONDEMNED or state in ACCUSED:
        return "False", Reasons.CONFIRMED_SLOW, status.message
    if state in (State.GATED, State.SWEEPING):
        return "False", Reasons.AWAITS_SWEEP, status.message
    if status.silent_since is not None:
        since = f"{status.silent_since:%Y-%m-%dT%H:%M:%SZ}"
        reason = Reasons.TELEMETRY_LOST
        return "Unknown", reason, reason.format(node=status.node_ref.name, since=since)
    if state is State.QUALIFIED:
        return "True", Reasons.SWEEP_PASSED, status.message
    if state is State.PROBATION and status.since is not None:
        until = f"{status.since + parse_duration(policy.spec.qualification.probation):%Y-%m-%dT%H:%M:%SZ}"
        return "True", Reasons.ON_PROBATION, Reasons.ON_PROBATION.format(until=until)
    if state is State.SUSPECT:
        return "Unknown", Reasons.SLOWER_THAN_PEERS, status.message
    if state is State.EXEMPT:
        return "Unknown", Reasons.EXEMPTED, status.message
    return "Unknown", Reasons.NOT_SWEPT, Reasons.NOT_SWEPT.message


def _acting(
    status: NodeHealthStatus,
    facts: HardwareFacts,
    policy: GuardPolicy | None,
    refusal: Refusal | None,
    now: datetime,
) -> tuple[_Value, Reason, str]:
    """Return the Acting condition as status, reason and message. False means that something prevents a
    wanted action.
    """
    if policy is not None and policy.spec.mode is Mode.OBSERVE:
        return _observing(status, policy, refusal)
    if refusal is not None:
        return "False", refusal.reason, refusal.message
    if status.state is State.DRAINING and policy is not None and status.since is not None and facts.node:
        waited = now - status.since
        limit = parse_duration(policy.spec.drain.timeout)
        if waited >= limit:
            pods = facts.node.pods
            reason = Reasons.DRAIN_BLOCKED
            return "False", reason, reason.format(pods=pods, seconds=int(limit.total_seconds()))
    if status.state is State.QUARANTINED and facts.node is not None and facts.node.unswappable:
        reason = Reasons.JOB_STAYS
        return "False", reason, reason.format(jobs=", ".join(facts.node.unswappable[:_MOST_JOBS]))
    if status.state is State.REQUALIFYING and policy is not None and policy.spec.sweeps is None:
        return "False", Reasons.AWAITS_RELEASE, Reasons.AWAITS_RELEASE.message
    if status.state in ACCUSED or status.sweep is not None:
        return "True", Reasons.GRANTED, Reasons.GRANTED.message
    return "True", Reasons.NOTHING_WANTED, Reasons.NOTHING_WANTED.message


def _observing(
    status: NodeHealthStatus, policy: GuardPolicy, refusal: Refusal | None
) -> tuple[_Value, Reason, str]:
    """Return the Acting condition of a node that is only observed: the action that mode Act would take.

    The message contains only stored values. The evidence that a job reports changes with every step, and
    each change would write the status again.
    """
    if status.state is not State.SUSPECT:
        return "True", Reasons.NOTHING_WANTED, Reasons.NOTHING_WANTED.message
    action = f"taint the node with {TAINT_SUSPECT}:PreferNoSchedule"
    if status.confirmed_at is not None:
        action = "quarantine the node"
    against = evidence.unrefuted(status.evidence)
    why = evidence.described(against[-1]) if against else status.message
    message = Reasons.WOULD_ACT.format(action=action, why=why, policy=policy.metadata.name)
    if status.confirmed_at is not None and refusal is not None:
        message = f"{message}. In mode Act, {refusal.message}"
    return "False", Reasons.WOULD_ACT, message


def _condition(
    status: NodeHealthStatus,
    kind: str,
    value: _Value,
    reason: Reason,
    message: str,
    now: datetime,
) -> Condition:
    old = next((one for one in status.conditions if one.type == kind), None)
    unmoved = old is not None and old.status == value
    return Condition(
        type=kind,
        status=value,
        reason=reason.name,
        message=message[:1024],
        last_transition_time=old.last_transition_time
        if old is not None and unmoved
        else now.replace(microsecond=0),
    )
