"""Outcome of a swap: Right if a job gained at least half of what was predicted, Wrong if not, Unknown if
the gain cannot be measured.

A wrongly accused node is released.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from convoy_controllers.nodehealth.observed import HardwareFacts
from convoy_controllers.nodehealth.pacing import ENOUGH
from convoy_controllers.nodehealth.record import lemon_score, with_state
from convoy_crds.nodehealth import EvidenceKind, NodeHealthStatus, Outcome, State
from convoy_crds.reasons.catalogue import Reasons

PATIENCE = timedelta(hours=2)
"""Time after an action. A pending outcome then becomes Unknown. Later measurements would prove little,
because jobs end or change.
"""


def with_outcome(status: NodeHealthStatus, facts: HardwareFacts, now: datetime) -> NodeHealthStatus:
    """Return the status with the outcome of the last action, and with the consequence of this outcome. The
    status stays unchanged while the outcome is not known.
    """
    last = status.actions[-1] if status.actions else None
    if last is None or last.outcome is not Outcome.PENDING:
        return status
    if not last.jobs or now - last.at >= PATIENCE:
        return _decided(status, Outcome.UNKNOWN, now)
    if facts.recovered is None:
        return status
    if facts.recovered >= ENOUGH:
        return _decided(status, Outcome.RIGHT, now)
    status = _decided(status, Outcome.WRONG, now, facts.followed)
    if last.test:
        # Nothing was held against the node, so there is nothing to correct.
        return status
    if any(one.kind is EvidenceKind.SWEEP for one in status.evidence):
        # Keep the state: the node did not slow down these jobs, but a sweep found a fault.
        return status
    kept = status.quarantines[:-1]
    update = {
        "quarantines": kept,
        "lemon_score": lemon_score(kept, now),
        "evidence": [],
        "confirmed_at": None,
    }
    status = status.model_copy(update=update)
    untouched = status.state is State.REQUALIFYING and status.repair.action is None
    if status.state in (State.QUARANTINED, State.DRAINING) or untouched:
        passed = status.qualified_until is not None and now < status.qualified_until
        after = State.QUALIFIED if passed else State.UNVERIFIED
    elif status.state is State.REPAIRING:
        # The owner of the repair may have changed the node, so it needs a retest.
        after = State.REQUALIFYING
    else:
        return status
    return with_state(status, after, now, Reasons.WRONGLY_ACCUSED, Reasons.WRONGLY_ACCUSED.message)


def without_pending(status: NodeHealthStatus, now: datetime) -> NodeHealthStatus:
    """Return the status with the outcome of the last action decided as Unknown if it is pending."""
    pending = bool(status.actions) and status.actions[-1].outcome is Outcome.PENDING
    return _decided(status, Outcome.UNKNOWN, now) if pending else status


def _decided(
    status: NodeHealthStatus, outcome: Outcome, now: datetime, followed: frozenset[str] = frozenset()
) -> NodeHealthStatus:
    last = status.actions[-1]
    paces = [one.model_copy(update={"followed": True}) if one.job in followed else one for one in last.paces]
    last = last.model_copy(update={"outcome": outcome, "decided": now, "paces": paces})
    return status.model_copy(update={"actions": [*status.actions[:-1], last]})
