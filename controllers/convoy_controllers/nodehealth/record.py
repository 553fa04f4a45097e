"""How what is stored of a node's health changes: one turn of state, with what belongs to it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from convoy_crds.meta import seconds
from convoy_crds.nodehealth import MOST_HISTORY, NodeHealthStatus, Provenance, State, StateChange
from convoy_crds.reasons.reason import Reason

IN_SERVICE = frozenset((State.UNVERIFIED, State.QUALIFIED, State.SUSPECT, State.PROBATION))
"""Takes pods."""
ACCUSED = frozenset((State.QUARANTINED, State.DRAINING, State.REPAIRING, State.REQUALIFYING))
"""Out of service because of evidence, and on the way back."""
TOKEN = frozenset((State.DRAINING, State.REPAIRING))
"""Holds a token of the pool and of its rack."""
TESTED = frozenset((State.SWEEPING, State.REQUALIFYING))
"""A sweep is under way, or about to be."""
_HALF_LIFE = timedelta(days=30)
_MESSAGE = 1024


def length(duration: str) -> timedelta:
    """A `Duration` of a policy."""
    return timedelta(seconds=seconds(duration))


def with_state(
    status: NodeHealthStatus,
    state: State,
    now: datetime,
    reason: Reason,
    message: str,
    provenance: Provenance | None = None,
) -> NodeHealthStatus:
    """The status in another state, with the change in its history, without what that state has no use for."""
    change = StateChange(
        at=now,
        before=status.state,
        after=state,
        reason=reason.name,
        message=message[:_MESSAGE],
        node=status.node_ref.name,
        provenance=provenance,
    )
    return status.model_copy(
        update={
            "state": state,
            "since": now,
            "message": message[:_MESSAGE],
            "history": [*status.history, change][-MOST_HISTORY:],
            "holds_token": state in TOKEN,
            "sweep": status.sweep if state in TESTED else None,
        }
    )


def lemon_score(quarantines: Iterable[datetime], now: datetime) -> float:
    """Quarantines, each halved with every 30 days since."""
    return round(sum(math.pow(0.5, (now - at) / _HALF_LIFE) for at in quarantines), 2)


def within(times: Iterable[datetime], span: timedelta, now: datetime) -> int:
    """How many of the times are no longer ago than `span`."""
    return sum(1 for at in times if now - at < span)
