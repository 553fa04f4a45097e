"""Sweeps of one node: the reasons to sweep the node, and the effect of a verdict."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from convoy_controllers.nodehealth import evidence
from convoy_controllers.nodehealth.observed import HardwareFacts, SweepResult
from convoy_controllers.nodehealth.record import lemon_score, parse_duration, with_internal, with_state
from convoy_crds.guardpolicy import BreakerState, GuardPolicy, GuardPolicySpec, OnJoin
from convoy_crds.nodehealth import (
    EvidenceKind,
    NodeHealthStatus,
    Provenance,
    RepairStatus,
    State,
    SweepCause,
    SweepRef,
    Verdict,
)
from convoy_crds.reasons.catalogue import Reasons

GRACE = timedelta(minutes=5)
"""Time after a sweep's deadline within which its verdict is still accepted."""
RETRY = timedelta(hours=1)
"""Minimum time between two sweeps of a suspect: an intermittent fault needs time to come back."""
_COMMITTED = (State.DRAINING, State.REPAIRING)
"""States in which a verdict is ignored, unless it comes from the sweep that the node waits for."""
OPTIONAL_CAUSES = (SweepCause.NOTICED, SweepCause.ROUTINE)
"""Causes without evidence against the node. An inconclusive sweep for such a cause changes nothing."""
MOST_INCONCLUSIVE = 2
"""Number of inconclusive sweeps after which the guard stops waiting for a verdict."""


def name_of(hardware: str, since: datetime) -> str:
    """Return the name of the HealthSweep that was granted to a node at `since`. A restarted operator finds
    the same name.
    """
    return f"{hardware[:200]}-{since:%Y%m%d-%H%M%S}"


def with_verdict(
    status: NodeHealthStatus, facts: HardwareFacts, spec: GuardPolicySpec, now: datetime
) -> NodeHealthStatus:
    """Return the status with the verdict of the awaited sweep, or of a sweep that a person created."""
    ref, result = status.sweep, facts.sweep
    if ref is None:
        return _with_other_verdict(status, result, spec, now)
    if result is None or result.name != ref.name:
        status = _with_other_verdict(status, result, spec, now)
        if status.sweep is None:
            return status
        if spec.sweeps is not None and now - ref.since < parse_duration(spec.sweeps.deadline) + GRACE:
            return status
        result = SweepResult(ref.name, now, Verdict.INCONCLUSIVE, "it did not finish by its deadline")
    if ref.cause is SweepCause.NOTICED or result.verdict is not Verdict.INCONCLUSIVE:
        status = _with_hint_tested(status, result, ref.cause)
    status = status.model_copy(update={"sweep": None, "swept": result.at})
    if result.verdict is Verdict.INCONCLUSIVE and ref.cause in OPTIONAL_CAUSES:
        return status
    if result.verdict is Verdict.PASS:
        return _passed(status, result, spec, now)
    if result.verdict is Verdict.FAIL:
        return _failed(status, result, spec, now)
    return _inconclusive(status, result, now)


def _with_other_verdict(
    status: NodeHealthStatus, result: SweepResult | None, spec: GuardPolicySpec, now: datetime
) -> NodeHealthStatus:
    if result is None or result.verdict is Verdict.INCONCLUSIVE or status.state in _COMMITTED:
        return status
    if status.since is None or (result.since or result.at) <= status.since:
        # Ignore measurements that are older than the current state, such as measurements before a repair.
        return status
    if status.swept is not None and result.at <= status.swept:
        return status
    status = _with_hint_tested(status, result).model_copy(update={"swept": result.at})
    apply = _passed if result.verdict is Verdict.PASS else _failed
    return apply(status, result, spec, now)


def _with_hint_tested(
    status: NodeHealthStatus, result: SweepResult, cause: SweepCause | None = None
) -> NodeHealthStatus:
    """Return the status without its hint, because this sweep has tested the hint.

    An inconclusive sweep tests a hint only if the hint was the cause of the sweep. Do not call this
    function after any other inconclusive sweep.
    """
    hinted = status.noticed is not None or cause is SweepCause.NOTICED
    looked_at = result.at if hinted else status.internal.looked_at
    return with_internal(status.model_copy(update={"noticed": None}), looked_at=looked_at)


def _passed(
    status: NodeHealthStatus, result: SweepResult, spec: GuardPolicySpec, now: datetime
) -> NodeHealthStatus:
    until = result.at + parse_duration(spec.qualification.expiry)
    kept = evidence.with_passed_sweep(status.evidence)
    message = Reasons.SWEEP_PASSED.format(name=result.name)
    update = {"qualified_until": until, "failures": 0, "evidence": kept}
    status = with_internal(status.model_copy(update=update), inconclusive=0)
    if status.state in (State.SWEEPING, State.GATED, State.UNVERIFIED, State.QUALIFIED):
        return with_state(status, State.QUALIFIED, now, Reasons.SWEEP_PASSED, message, result.provenance)
    if status.state is State.REQUALIFYING:
        fresh: dict[str, Any] = {"evidence": [], "confirmed_at": None, "repair": RepairStatus()}
        status = with_internal(status.model_copy(update=fresh), clean_since=now)
        return with_state(status, State.PROBATION, now, Reasons.SWEEP_PASSED, message, result.provenance)
    # The sweep passed, but jobs saw slowness. So a suspect stays suspect until there has been no evidence for
    # the time `suspectClears`.
    status = status.model_copy(update={"confirmed_at": None})
    if status.state is State.QUARANTINED:
        # The quarantine was not needed, so remove it from the quarantines that the lemon score counts.
        known = status.quarantines[:-1]
        score = lemon_score(known, now)
        status = status.model_copy(update={"quarantines": known, "lemon_score": score})
        return with_state(status, State.SUSPECT, now, Reasons.SWEEP_PASSED, message, result.provenance)
    return with_state(status, status.state, now, Reasons.SWEEP_PASSED, message, result.provenance)


def _failed(
    status: NodeHealthStatus, result: SweepResult, spec: GuardPolicySpec, now: datetime
) -> NodeHealthStatus:
    reason, message = (
        Reasons.SWEEP_FAILED,
        Reasons.SWEEP_FAILED.format(name=result.name, why=result.message or "see its findings"),
    )
    found: Provenance | None = result.provenance
    known = evidence.with_failed_sweep(status.evidence, result)
    status = status.model_copy(update={"evidence": known})
    status = with_internal(status, inconclusive=0, clean_since=result.at)
    if status.state is State.REQUALIFYING:
        return _retest_failed(status, message, spec, now)
    if status.state is State.QUARANTINED:
        return with_state(status, State.QUARANTINED, now, reason, message, found)
    # Hardware that was in service stays in service until the failure is confirmed. Otherwise a broken test
    # could take the whole fleet out of service.
    joined = status.state is State.SWEEPING and status.qualified_until is None
    return with_state(status, State.GATED if joined else State.SUSPECT, now, reason, message, found)


def _retest_failed(
    status: NodeHealthStatus, message: str, spec: GuardPolicySpec, now: datetime
) -> NodeHealthStatus:
    failures = status.failures + 1
    repair = RepairStatus(step=status.repair.step + 1)
    status = status.model_copy(update={"failures": failures, "repair": repair, "qualified_until": None})
    reason = Reasons.REQUALIFICATION_FAILED
    words = reason.format(count=failures, why=message)
    condemned = failures >= spec.qualification.condemn_after_failures
    return with_state(status, State.CONDEMNED if condemned else State.QUARANTINED, now, reason, words)


def _inconclusive(status: NodeHealthStatus, result: SweepResult, now: datetime) -> NodeHealthStatus:
    reason = Reasons.SWEEP_INCONCLUSIVE
    message = reason.format(name=result.name, why=result.message or "see its findings")
    count = status.internal.inconclusive + 1
    status = with_internal(status, inconclusive=count)
    if status.state is State.SUSPECT:
        return with_state(status, State.SUSPECT, now, reason, message, result.provenance)
    if count >= MOST_INCONCLUSIVE and status.state is not State.QUARANTINED:
        # Forgive the losses so far, so that the evidence no longer suffices to take the node out of service.
        update = {
            "repair": RepairStatus(),
            "confirmed_at": None,
            "evidence": evidence.with_passed_sweep(status.evidence),
        }
        status = with_internal(status.model_copy(update=update), clean_since=now)
        return with_state(status, State.SUSPECT, now, reason, message, result.provenance)
    after = status.state
    if after is State.SWEEPING:
        after = State.GATED if status.qualified_until is None else State.QUALIFIED
    return with_state(status, after, now, reason, message, result.provenance)


def needed_sweep(
    status: NodeHealthStatus, facts: HardwareFacts, policy: GuardPolicy, now: datetime
) -> SweepCause | None:
    """Return the cause for which the node needs a sweep now; None if it needs none or cannot be swept now."""
    spec = policy.spec
    if spec.sweeps is None or status.sweep is not None or not facts.agent_connected or not facts.idle:
        return None
    failed = evidence.failures(status.evidence) > 0
    # While the breaker is not closed, it permits a drain only after a failed sweep. So a quarantined node
    # then needs a sweep.
    closed = policy.status.breaker.state is BreakerState.CLOSED
    expired = status.qualified_until is not None and now >= status.qualified_until
    hinted = status.noticed is not None
    match status.state:
        case State.REQUALIFYING:
            return SweepCause.RETURNING
        case State.GATED if not failed:
            return SweepCause.JOINED
        case State.QUARANTINED if not closed and not failed:
            return SweepCause.SUSPECTED
        case State.SUSPECT if _worth_a_sweep(status, now):
            return SweepCause.SUSPECTED
        case State.UNVERIFIED | State.QUALIFIED if hinted:
            return SweepCause.NOTICED
        case State.QUALIFIED if expired and spec.on_join is OnJoin.GATE:
            return SweepCause.EXPIRED
    return None


def _worth_a_sweep(status: NodeHealthStatus, now: datetime) -> bool:
    """Return True if a suspect was never swept, has new evidence since its last sweep, or needs a
    confirming sweep.
    """
    if status.swept is None:
        return True
    if now - status.swept < RETRY or status.internal.inconclusive >= MOST_INCONCLUSIVE:
        return False
    online = any(one.seen > status.swept for one in status.evidence if one.kind is EvidenceKind.ONLINE)
    again = evidence.failures(status.evidence) == 1
    return online or again or status.internal.inconclusive > 0


def with_sweep(
    status: NodeHealthStatus, hardware: str, cause: SweepCause, now: datetime, swaps: bool = False
) -> NodeHealthStatus:
    """Return the status after a sweep of the node was granted. `swaps`: True if the jobs on the node are
    swapped to other nodes for it.
    """
    ref = SweepRef(name=name_of(hardware, now), since=now, cause=cause, swaps=swaps)
    message = Reasons.UNDER_TEST.format(name=ref.name)
    if status.state is State.GATED or cause is SweepCause.EXPIRED:
        status = with_state(status, State.SWEEPING, now, Reasons.UNDER_TEST, message)
    return status.model_copy(update={"sweep": ref, "sweeps": status.sweeps + 1})
