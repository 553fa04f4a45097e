"""Chooses between spot and on-demand nodes for the pods that are created next.

The pool falls back to on-demand nodes after a time without a ready spot node, or when preemptions come too
often. It stays there for a minimum time, so that it does not flap, and returns when a spot node is ready.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from convoy_controllers.cached import Node
from convoy_controllers.spotpool.noticing import closes_node
from convoy_controllers.spotpool.preemptions import WINDOW_SECONDS
from convoy_crds.meta import seconds
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.spotpool import Fallback, SpotPoolSpec
from convoy_crds.spotpool_status import CapacityMode, NodeNotice, SpotPoolStatus


@dataclass(frozen=True, slots=True)
class Choice:
    """The capacity for pods that are created next."""

    mode: CapacityMode
    reason: Reason
    message: str
    since: datetime | None = None
    """Time at which the mode last changed; None if it has never changed."""
    short_since: datetime | None = None
    """Time since which wanted pods have had no ready spot node."""
    probe: bool = False
    """True if one pod must move to spot capacity although no spot node is ready."""

    @property
    def spot(self) -> bool:
        """Return True for spot nodes."""
        return self.mode is CapacityMode.SPOT


def usable(nodes: Iterable[Node], notices: Iterable[NodeNotice], spec: SpotPoolSpec) -> tuple[Node, ...]:
    """Return the spot nodes that may get pods."""
    closed = {one.node_uid for one in notices if closes_node(one, spec.notice)}
    return tuple(node for node in nodes if node.ready and not node.cordoned and node.uid not in closed)


def choose(status: SpotPoolStatus, spec: SpotPoolSpec, ready: int, wanted: int, now: datetime) -> Choice:
    """Return the capacity for the pods that are created next. `ready`: number of usable spot nodes.
    `wanted`: number of pods that jobs want.
    """
    short_since = (status.internal.short_since or now) if wanted and not ready else None
    if spec.fallback is None:
        return _spot(ready, wanted, short_since, None)
    since, rate = status.mode_since, interruptions(status, now)
    limit = spec.fallback.max_interruptions_per_hour
    if limit is not None and rate > limit:
        reason = Reasons.INTERRUPTED_TOO_OFTEN
        return _on_demand(status, reason, reason.format(count=rate, limit=limit), short_since, now)
    if status.mode is CapacityMode.ON_DEMAND:
        return _return_or_stay(status, spec.fallback, ready, short_since, now)
    if short_since is not None and (now - short_since).total_seconds() >= seconds(spec.fallback.after):
        reason = Reasons.NO_SPOT_NODE
        return _on_demand(status, reason, reason.format(after=spec.fallback.after), short_since, now)
    return _spot(ready, wanted, short_since, since)


def interruptions(status: SpotPoolStatus, now: datetime) -> int:
    """Return the number of preemptions within the last hour."""
    times = status.internal.interruptions
    return sum((now - time).total_seconds() < WINDOW_SECONDS for time in times)


def _return_or_stay(
    status: SpotPoolStatus, fallback: Fallback, ready: int, short_since: datetime | None, now: datetime
) -> Choice:
    since = status.mode_since or now
    stayed = (now - since).total_seconds() >= seconds(fallback.minimum_stay)
    if stayed and (ready or fallback.probe):
        reason = Reasons.SPOT_IN_USE
        message = reason.format(ready=ready)
        return Choice(CapacityMode.SPOT, reason, message, now, None if ready else now, probe=not ready)
    reason = Reasons.ON_DEMAND_STAY
    message = reason.format(stay=fallback.minimum_stay, ready=ready)
    return Choice(CapacityMode.ON_DEMAND, reason, message, since, short_since)


def _on_demand(
    status: SpotPoolStatus, reason: Reason, message: str, short_since: datetime | None, now: datetime
) -> Choice:
    since = status.mode_since if status.mode is CapacityMode.ON_DEMAND else now
    return Choice(CapacityMode.ON_DEMAND, reason, message, since or now, short_since)


def _spot(ready: int, wanted: int, short_since: datetime | None, since: datetime | None) -> Choice:
    if short_since is not None:
        reason = Reasons.AWAITING_SPOT_NODE
        message = reason.format(wanted=wanted)
    else:
        reason = Reasons.SPOT_IN_USE
        message = reason.format(ready=ready)
    return Choice(CapacityMode.SPOT, reason, message, since, short_since)
