"""Decisions of people, which override the guard: condemn a node, exempt it for a while, or release it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from convoy_controllers.nodehealth.record import IN_SERVICE, with_internal, with_state
from convoy_crds.nodehealth import (
    MOST_EXEMPT_HOURS,
    ExemptStatus,
    NodeHealthSpec,
    NodeHealthStatus,
    RepairStatus,
    State,
)
from convoy_crds.reasons.catalogue import Reasons

_LONGEST = timedelta(hours=MOST_EXEMPT_HOURS)
_AFTER_EXEMPTION = {
    # State after an exemption, by the state that the node had until then. A node that was out of service
    # becomes suspect, so another action against it needs the permission of the budgets again.
    State.QUARANTINED: State.SUSPECT,
    State.DRAINING: State.SUSPECT,
    State.REPAIRING: State.SUSPECT,
    State.SWEEPING: State.GATED,
    State.EXEMPT: State.UNVERIFIED,
}


def apply_spec(status: NodeHealthStatus, spec: NodeHealthSpec, now: datetime) -> NodeHealthStatus:
    """Return the status with the decisions of the spec applied; the same object if there is nothing to
    apply.
    """
    if spec.condemned is not None:
        if status.state is State.CONDEMNED:
            return status if status.internal.condemned_by_hand else _by_hand(status)
        decision = spec.condemned
        message = Reasons.CONDEMNED_BY_HAND.format(user=decision.user, why=decision.reason)
        return _by_hand(with_state(status, State.CONDEMNED, now, Reasons.CONDEMNED_BY_HAND, message))
    if status.internal.condemned_by_hand:
        status = with_internal(status, condemned_by_hand=False)
        if status.state is State.CONDEMNED:
            reason = Reasons.NO_LONGER_CONDEMNED
            status = with_state(status, State.REQUALIFYING, now, reason, reason.message)
    status = _released(status, spec, now)
    return _exempted(status, spec, now)


def exempt_until(exemption: ExemptStatus) -> datetime:
    """Return the end of an exemption. An exemption is never longer than the permitted maximum."""
    return min(exemption.until, exemption.since + _LONGEST)


def exempted_until(status: NodeHealthStatus, spec: NodeHealthSpec, now: datetime) -> datetime | None:
    """Return the end of the exemption that applies now; None without one. The exemption applies even before
    the status contains it.
    """
    decision, known = spec.exempt, status.exemption
    if decision is None or spec.condemned is not None:
        return None
    if known is None or known.until != decision.until:
        known = ExemptStatus(since=now, until=decision.until, before=status.state)
    end = exempt_until(known)
    return end if now < end else None


def _by_hand(status: NodeHealthStatus) -> NodeHealthStatus:
    return with_internal(status, condemned_by_hand=True)


def _released(status: NodeHealthStatus, spec: NodeHealthSpec, now: datetime) -> NodeHealthStatus:
    decision = spec.release
    if decision is None or decision.at == status.internal.released_at:
        return status
    cleared: dict[str, Any] = {
        "evidence": [],
        "confirmed_at": None,
        "noticed": None,
        "quarantines": [],
        "lemon_score": 0.0,
        "failures": 0,
        "repair": RepairStatus(),
    }
    released = with_internal(
        status.model_copy(update=cleared),
        released_at=decision.at,
        looked_at=None,
        inconclusive=0,
        clean_since=now,
    )
    if status.state is State.EXEMPT:
        if status.exemption is None or status.exemption.before in IN_SERVICE - {State.SUSPECT}:
            return released
        exemption = status.exemption.model_copy(update={"before": State.PROBATION})
        return released.model_copy(update={"exemption": exemption})
    if status.state in IN_SERVICE - {State.SUSPECT}:
        return released
    message = Reasons.RELEASED_BY_HAND.format(user=decision.user, why=decision.reason)
    return with_state(released, State.PROBATION, now, Reasons.RELEASED_BY_HAND, message)


def _exempted(status: NodeHealthStatus, spec: NodeHealthSpec, now: datetime) -> NodeHealthStatus:
    decision, known = spec.exempt, status.exemption
    if decision is not None and (known is None or known.until != decision.until) and now < decision.until:
        before = known.before if known is not None and status.state is State.EXEMPT else status.state
        known = ExemptStatus(since=now, until=decision.until, before=before)
        status = status.model_copy(update={"exemption": known})
    end = exempted_until(status, spec, now)
    if end is not None and decision is not None and status.state is not State.EXEMPT:
        until = f"{end:%Y-%m-%dT%H:%M:%SZ}"
        message = Reasons.EXEMPTED.format(until=until, user=decision.user, why=decision.reason)
        return with_state(status, State.EXEMPT, now, Reasons.EXEMPTED, message)
    if end is None and status.state is State.EXEMPT:
        before = known.before if known is not None else State.UNVERIFIED
        until = f"{exempt_until(known):%Y-%m-%dT%H:%M:%SZ}" if known is not None else "once"
        message = Reasons.EXEMPTION_OVER.format(until=until)
        return with_state(status, _AFTER_EXEMPTION.get(before, before), now, Reasons.EXEMPTION_OVER, message)
    return status
