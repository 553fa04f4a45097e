"""Changes of a node's stored health: the transition to another state, and the lemon score."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from convoy_crds.meta import seconds
from convoy_crds.nodehealth import MOST_HISTORY, NodeHealthStatus, Provenance, State, StateChange
from convoy_crds.reasons.reason import Reason

IN_SERVICE = frozenset((State.UNVERIFIED, State.QUALIFIED, State.SUSPECT, State.PROBATION))
"""States in which a node gets pods."""
ACCUSED = frozenset((State.QUARANTINED, State.DRAINING, State.REPAIRING, State.REQUALIFYING))
"""States in which a node is out of service because of evidence, or on its way back to service."""
TOKEN = frozenset((State.DRAINING, State.REPAIRING))
"""States in which a node uses one token of the pool's budget and one of its rack's budget."""
TESTED = frozenset((State.SWEEPING, State.REQUALIFYING))
"""States in which the node's sweep is running or about to start."""
_HALF_LIFE = timedelta(days=30)
_MESSAGE = 1024


def parse_duration(duration: str) -> timedelta:
    """Return a policy's `Duration` as a timedelta."""
    return timedelta(seconds=seconds(duration))


def with_state(
    status: NodeHealthStatus,
    state: State,
    now: datetime,
    reason: Reason,
    message: str,
    provenance: Provenance | None = None,
) -> NodeHealthStatus:
    """Return the status in another state. The history contains the change, and fields that the new state
    does not need are cleared.
    """
    change = StateChange(
        at=now,
        before=status.state,
        after=state,
        reason=reason.name,
        message=message[:_MESSAGE],
        node=status.node_ref.name,
        provenance=provenance,
    )
    moved = status.model_copy(
        update={
            "state": state,
            "since": now,
            "message": message[:_MESSAGE],
            "history": [*status.history, change][-MOST_HISTORY:],
            "sweep": status.sweep if state in TESTED else None,
        }
    )
    return with_internal(moved, holds_token=state in TOKEN)


def with_internal(status: NodeHealthStatus, **fields: object) -> NodeHealthStatus:
    """Return the status with other values of these fields of `internal`."""
    return status.model_copy(update={"internal": status.internal.model_copy(update=fields)})


def lemon_score(quarantines: Iterable[datetime], now: datetime) -> float:
    """Return the number of quarantines, weighted by age: the weight halves every 30 days."""
    return round(sum(math.pow(0.5, (now - at) / _HALF_LIFE) for at in quarantines), 2)


def within(times: Iterable[datetime], span: timedelta, now: datetime) -> int:
    """Return the number of times that are less than `span` ago."""
    return sum(1 for at in times if now - at < span)
