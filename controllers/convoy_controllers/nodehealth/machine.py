"""State machine of one node's health: automatic changes, requests, and the effect of a granted request.

A step towards a return to service needs no permission and happens here. A step that takes a node out of
service is only requested here; the modules `budget` and `breaker` permit or refuse it.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from convoy_controllers.nodehealth import evidence, manual, noticing, outcome, repairing, sweeping
from convoy_controllers.nodehealth.observed import HardwareFacts, Member
from convoy_controllers.nodehealth.record import (
    ACCUSED,
    lemon_score,
    parse_duration,
    with_internal,
    with_state,
)
from convoy_crds.guardpolicy import GuardPolicy, Mode, OnJoin
from convoy_crds.nodehealth import (
    MOST_ACTIONS,
    Action,
    EvidenceKind,
    NodeHealthStatus,
    NodeRef,
    State,
    SweepCause,
)
from convoy_crds.reasons.catalogue import Reasons


class RequestKind(StrEnum):
    """Kind of action that needs permission."""

    SWEEP = "a sweep"
    ROUTINE = "a routine sweep"
    TEST = "a test of a suspect"
    """A sweep for which the jobs on the node are swapped."""
    QUARANTINE = "a quarantine"
    DRAIN = "a drain"


SWEEPS = frozenset((RequestKind.SWEEP, RequestKind.ROUTINE))


class Request(NamedTuple):
    """An action that a node requests, and the reason for the request."""

    kind: RequestKind
    why: str = ""
    cause: SweepCause = SweepCause.SUSPECTED
    """Cause of the sweep, if the request is for a sweep."""


def next_status(member: Member, policy: GuardPolicy | None, now: datetime) -> NodeHealthStatus:
    """Return the stored status with all changes that need no permission."""
    status, facts = member.health.status, member.facts
    status = _bound(status, facts, policy, now)
    if status.since is None:
        status = _initial(status, facts, policy, now)
    status = _with_silence(status, facts, now)
    before = status.internal.released_at
    status = manual.apply_spec(status, member.health.spec, now)
    if status.internal.released_at != before:
        # Restart the evidence: only losses after the release count.
        status = status.model_copy(update={"evidence": evidence.forgiven(facts)})
    if policy is None or policy.spec.mode is Mode.OBSERVE:
        status = _observed(status, now)
    if policy is None or status.state in (State.CONDEMNED, State.EXEMPT):
        return status
    spec = policy.spec
    known = evidence.gathered(status, facts, spec, now)
    if known != status.evidence:
        seen = evidence.last_sign(known)
        status = status.model_copy(update={"evidence": known})
        status = with_internal(status, clean_since=seen or status.internal.clean_since)
    status = noticing.with_notice(status, facts, spec, now)
    status = sweeping.with_verdict(status, facts, spec, now)
    status = outcome.with_outcome(status, facts, now)
    status = _next_state(status, facts, policy, now)
    return _confirmed(status, facts, policy, now)


def _initial(
    status: NodeHealthStatus, facts: HardwareFacts, policy: GuardPolicy | None, now: datetime
) -> NodeHealthStatus:
    node = facts.node.name if facts.node else ""
    message = Reasons.NEW_HARDWARE.format(node=node)
    gated = gates(policy, facts)
    status = with_internal(status, clean_since=now)
    state = State.GATED if gated else State.UNVERIFIED
    return with_state(status, state, now, Reasons.NEW_HARDWARE, message)


def gates(policy: GuardPolicy | None, facts: HardwareFacts) -> bool:
    """Return True if new hardware must pass a sweep before it gets pods. The policy must require the sweep,
    and the node must be younger than the policy and run no job.
    """
    if policy is None or policy.spec.mode is Mode.OBSERVE or policy.spec.on_join is OnJoin.ACCEPT:
        return False
    made, node = policy.metadata.creation_timestamp, facts.node
    return facts.idle and node is not None and (made is None or node.created >= made)


def _bound(
    status: NodeHealthStatus, facts: HardwareFacts, policy: GuardPolicy | None, now: datetime
) -> NodeHealthStatus:
    """Return the status with the policy and node that the hardware has now. During a repair the stored boot
    id stays the same, so that a reboot is detected.
    """
    node, known = facts.node, status.node_ref
    name = policy.metadata.name if policy is not None else ""
    if status.policy != name:
        status = status.model_copy(update={"policy": name})
    if node is None:
        return status
    ref = NodeRef(name=node.name, uid=node.uid, rack=node.rack, driver=node.driver, boot_id=known.boot_id)
    if not known.boot_id or status.state is not State.REPAIRING:
        ref = ref.model_copy(update={"boot_id": node.boot_id})
    if ref == known:
        return status
    renamed = bool(known.name) and known.name != node.name
    status = status.model_copy(update={"node_ref": ref})
    if not renamed:
        return status
    message = Reasons.MOVED.format(before=known.name, after=node.name)
    since = status.since
    # The move to another node does not change the health state. Keep the time at which the state began.
    sweep = status.sweep
    renamed_status = with_state(status, status.state, now, Reasons.MOVED, message)
    return renamed_status.model_copy(update={"since": since, "message": status.message, "sweep": sweep})


def _with_silence(status: NodeHealthStatus, facts: HardwareFacts, now: datetime) -> NodeHealthStatus:
    """Return the status with the time since which the node's agent is silent; empty after the agent's
    return. Time without telemetry does not count as time without evidence.
    """
    if not facts.agent_connected:
        return status if status.silent_since else status.model_copy(update={"silent_since": now})
    if status.silent_since is None:
        return status
    clean = status.internal.clean_since
    if clean is not None:
        clean = clean + (now - max(status.silent_since, clean))
    return with_internal(status.model_copy(update={"silent_since": None}), clean_since=clean)


def _observed(status: NodeHealthStatus, now: datetime) -> NodeHealthStatus:
    """Return the status of a node that the guard only observes: the node stays in service."""
    if status.state in ACCUSED:
        after = State.SUSPECT if status.evidence else service(status, now)
    elif status.state in (State.GATED, State.SWEEPING, State.PROBATION):
        after = service(status, now)
    else:
        return status.model_copy(update={"sweep": None}) if status.sweep else status
    return with_state(status, after, now, Reasons.OBSERVED_ONLY, Reasons.OBSERVED_ONLY.message)


def service(status: NodeHealthStatus, now: datetime) -> State:
    """Return the state of a node in service without evidence against it: Qualified until its passed sweep
    expires, else Unverified.
    """
    passed = status.qualified_until is not None and now < status.qualified_until
    return State.QUALIFIED if passed else State.UNVERIFIED


def _next_state(
    status: NodeHealthStatus, facts: HardwareFacts, policy: GuardPolicy, now: datetime
) -> NodeHealthStatus:
    spec = policy.spec
    if status.state in (State.UNVERIFIED, State.QUALIFIED, State.PROBATION):
        if worst := evidence.unrefuted(status.evidence):
            words = worst[-1].message or f"{worst[-1].source}: {worst[-1].cause}"
            return with_state(
                status, State.SUSPECT, now, Reasons.SLOWER_THAN_PEERS, words, worst[-1].provenance
            )
        expired = status.qualified_until is not None and now >= status.qualified_until
        if status.state is State.QUALIFIED and expired and spec.on_join is OnJoin.ACCEPT:
            reason = Reasons.QUALIFICATION_EXPIRED
            return with_state(status, State.UNVERIFIED, now, reason, reason.message)
        if status.state is State.PROBATION and clean(
            status, facts, policy, now, spec.qualification.probation
        ):
            return _clear(status, now, spec.qualification.probation)
        return status
    if status.state is State.SUSPECT:
        failed = evidence.failures(status.evidence) > 0
        quiet = clean(status, facts, policy, now, spec.qualification.suspect_clears)
        if quiet and not failed and status.sweep is None:
            return _clear(status, now, spec.qualification.suspect_clears)
        return status
    return repairing.next_state(status, facts, spec, now)


def clean(
    status: NodeHealthStatus, facts: HardwareFacts, policy: GuardPolicy, now: datetime, span: str
) -> bool:
    """Return True if there was no evidence against the node for `span` while its agent was connected."""
    if not facts.agent_connected or any(
        evidence.is_evidence(one, policy.spec.detection, now) for one in facts.suspicions
    ):
        return False
    since = max(status.internal.clean_since or now, status.since or now)
    return now - since >= parse_duration(span)


def _clear(status: NodeHealthStatus, now: datetime, span: str) -> NodeHealthStatus:
    message = Reasons.CLEARED.format(seconds=int(parse_duration(span).total_seconds()))
    fresh: dict[str, Any] = {"evidence": [], "confirmed_at": None}
    cleared = with_internal(status.model_copy(update=fresh), inconclusive=0)
    return with_state(cleared, service(status, now), now, Reasons.CLEARED, message)


def _confirmed(
    status: NodeHealthStatus, facts: HardwareFacts, policy: GuardPolicy, now: datetime
) -> NodeHealthStatus:
    """Return the status with the time at which the evidence first sufficed for an action. The breaker
    counts such nodes, even if no action follows.
    """
    if status.state is State.SUSPECT or status.state is State.GATED:
        proven = _proven(status, facts, policy, now).proven
        if proven and status.confirmed_at is None:
            return status.model_copy(update={"confirmed_at": now})
    return status


def _proven(
    status: NodeHealthStatus, facts: HardwareFacts, policy: GuardPolicy, now: datetime
) -> evidence.Case:
    if status.state is State.GATED:
        # The node was never in service, so only failed sweeps count.
        failed = [one for one in status.evidence if one.kind is EvidenceKind.SWEEP]
        return evidence.Case(bool(failed), failed[-1].message or failed[-1].source if failed else "")
    return evidence.case(status, facts, policy.spec, now)


def requests(
    status: NodeHealthStatus, facts: HardwareFacts, policy: GuardPolicy, now: datetime
) -> tuple[Request, ...]:
    """Return the node's requests for actions that need permission. Only the first granted request is
    carried out.
    """
    found: list[Request] = []
    if status.state in (State.SUSPECT, State.GATED):
        # Request no quarantine while the agent is away: the evidence may be out of date.
        case = _proven(status, facts, policy, now)
        if case.proven and facts.agent_connected:
            found.append(Request(RequestKind.QUARANTINE, case.why))
    decided = status.state is State.QUARANTINED and status.sweep is None
    if decided and (why := repairing.reason_to_drain(status, facts, policy.spec, now)):
        found.append(Request(RequestKind.DRAIN, why))
    if (cause := sweeping.needed_sweep(status, facts, policy, now)) is not None:
        optional = cause in sweeping.OPTIONAL_CAUSES
        found.append(Request(RequestKind.ROUTINE if optional else RequestKind.SWEEP, cause=cause))
    if why := noticing.reason_to_swap(status, facts, policy.spec, now):
        found.append(Request(RequestKind.TEST, why, SweepCause.NOTICED))
    return tuple(found)


def granted(
    status: NodeHealthStatus, facts: HardwareFacts, hardware: str, request: Request, now: datetime
) -> NodeHealthStatus:
    """Return the status with the effect of the granted `request`."""
    if request.kind in SWEEPS:
        return sweeping.with_sweep(status, hardware, request.cause, now)
    if request.kind is RequestKind.TEST:
        status = sweeping.with_sweep(status, hardware, request.cause, now, swaps=True)
        return _with_action(status, facts, now, test=True)
    if request.kind is RequestKind.QUARANTINE:
        quarantines = [*status.quarantines, now][-16:]
        update = {"quarantines": quarantines, "lemon_score": lemon_score(quarantines, now), "failures": 0}
        status = status.model_copy(update=update)
        message = Reasons.CONFIRMED_SLOW.format(why=request.why)
        return with_state(status, State.QUARANTINED, now, Reasons.CONFIRMED_SLOW, message)
    if request.kind is RequestKind.DRAIN:
        status = _with_action(status, facts, now)
        message = Reasons.DRAINING_NODE.format(why=request.why)
        return with_state(status, State.DRAINING, now, Reasons.DRAINING_NODE, message)
    return status


def _with_action(
    status: NodeHealthStatus, facts: HardwareFacts, now: datetime, test: bool = False
) -> NodeHealthStatus:
    """Return the status with another swap of the node's jobs. The outcome of an earlier swap that is still
    pending becomes Unknown, because the jobs change again.
    """
    status = outcome.without_pending(status, now)
    jobs = sorted(set(facts.node.jobs))[:64] if facts.node else []
    action = Action(at=now, test=test, rack=status.node_ref.rack, jobs=jobs, paces=list(facts.paces[:16]))
    return status.model_copy(update={"actions": [*status.actions, action][-MOST_ACTIONS:]})
