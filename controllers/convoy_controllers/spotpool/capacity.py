"""Chooses between spot and on-demand nodes for the pods that are created next.

The pool falls back to on-demand nodes after a time with too few ready spot nodes, or when preemptions come
too often. Pods on spot nodes stay there, so on-demand nodes make up for the missing ones only. The pool stays
in this mode for a minimum time, so that it does not flap. It returns when enough spot nodes are ready, or
when one has room.
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
    """Time since which wanted pods have had too few ready spot nodes."""
    probe: bool = False
    """True if one pod must move to spot capacity although no ready spot node has room."""

    @property
    def spot(self) -> bool:
        """Return True for spot nodes."""
        return self.mode is CapacityMode.SPOT


@dataclass(frozen=True, slots=True)
class SpotNodeCounts:
    """The spot nodes that there are and that are needed."""

    ready: int
    """Number of spot nodes that may get pods."""
    needed: int = 0
    """Number of nodes that the wanted pods need, at most those that the pool may use; 0 without pods."""
    room: bool = False
    """True if a ready spot node has room for another pod."""

    def enough(self, fallback: Fallback | None) -> int:
        """Return the number of ready spot nodes with which no fall-back is necessary, at least 1."""
        return max(1, min(self.needed, fallback.spot_below)) if fallback is not None else 1


def usable(nodes: Iterable[Node], notices: Iterable[NodeNotice], spec: SpotPoolSpec) -> tuple[Node, ...]:
    """Return the spot nodes that may get pods."""
    closed = {one.node_uid for one in notices if closes_node(one, spec.notice)}
    return tuple(node for node in nodes if node.ready and not node.cordoned and node.uid not in closed)


def choose(
    status: SpotPoolStatus, fallback: Fallback | None, nodes: SpotNodeCounts, wanted: int, now: datetime
) -> Choice:
    """Return the capacity for the pods that are created next. `wanted`: number of pods that jobs want."""
    enough = nodes.enough(fallback)
    short_since = (status.internal.short_since or now) if wanted and nodes.ready < enough else None
    if fallback is None:
        return _spot(nodes.ready, wanted, short_since, None)
    since, rate = status.mode_since, interruptions(status, now)
    limit = fallback.max_interruptions_per_hour
    if limit is not None and rate > limit:
        reason = Reasons.INTERRUPTED_TOO_OFTEN
        return _on_demand(status, reason, reason.format(count=rate, limit=limit), short_since, now)
    if status.mode is CapacityMode.ON_DEMAND:
        return _return_or_stay(status, fallback, nodes, short_since, now)
    if short_since is not None and (now - short_since).total_seconds() >= seconds(fallback.after):
        reason = Reasons.TOO_FEW_SPOT_NODES if nodes.ready else Reasons.NO_SPOT_NODE
        facts = {"after": fallback.after, "ready": nodes.ready, "below": fallback.spot_below}
        return _on_demand(status, reason, reason.format(enough=enough, **facts), short_since, now)
    return _spot(nodes.ready, wanted, short_since, since)


def interruptions(status: SpotPoolStatus, now: datetime) -> int:
    """Return the number of preemptions within the last hour."""
    times = status.internal.interruptions
    return sum((now - time).total_seconds() < WINDOW_SECONDS for time in times)


def _return_or_stay(
    status: SpotPoolStatus,
    fallback: Fallback,
    nodes: SpotNodeCounts,
    short_since: datetime | None,
    now: datetime,
) -> Choice:
    since, enough = status.mode_since or now, nodes.enough(fallback)
    stayed = (now - since).total_seconds() >= seconds(fallback.minimum_stay)
    if stayed and (nodes.ready >= enough or nodes.room or fallback.probe):
        reason = Reasons.SPOT_IN_USE
        message = reason.format(ready=nodes.ready)
        short = nodes.ready < enough
        probe = short and not nodes.room
        return Choice(CapacityMode.SPOT, reason, message, now, now if short else None, probe)
    reason = Reasons.ON_DEMAND_STAY
    message = reason.format(stay=fallback.minimum_stay, ready=nodes.ready, enough=enough)
    return Choice(CapacityMode.ON_DEMAND, reason, message, since, short_since)


def _on_demand(
    status: SpotPoolStatus, reason: Reason, message: str, short_since: datetime | None, now: datetime
) -> Choice:
    since = status.mode_since if status.mode is CapacityMode.ON_DEMAND else now
    return Choice(CapacityMode.ON_DEMAND, reason, message, since or now, short_since)


def _spot(ready: int, wanted: int, short_since: datetime | None, since: datetime | None) -> Choice:
    if short_since is not None and not ready:
        reason = Reasons.AWAITING_SPOT_NODE
        message = reason.format(wanted=wanted)
    else:
        reason = Reasons.SPOT_IN_USE
        message = reason.format(ready=ready)
    return Choice(CapacityMode.SPOT, reason, message, since, short_since)
