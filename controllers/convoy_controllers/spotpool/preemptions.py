"""Counts how nodes left: preempted with or without a notice, or removed on purpose."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from convoy_controllers.spotpool.node_records import NodeEnd
from convoy_crds.spotpool_status import (
    MAX_NODES,
    MAX_SAMPLES,
    NodeNotice,
    NodeRecord,
    NoticeKind,
    NoticeSeconds,
    NoticeState,
    Preemptions,
    SpotPoolStatus,
)

WINDOW_SECONDS = 3600.0
"""Length of the window of `fallback.maxInterruptionsPerHour`, in seconds."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A node that has left, with its class."""

    name: str
    preempted: bool
    """False if a controller or an administrator removed the node on purpose."""
    at: datetime
    """Time at which the node stopped working, as far as it is known."""
    notice: NodeNotice | None = None
    """The notice that announced the end; None without one."""


def departures(ends: Iterable[NodeEnd], notices: Iterable[NodeNotice], now: datetime) -> list[Departure]:
    """Return the nodes that have left. A node that was cordoned, or that a controller announced to remove,
    was removed on purpose.
    """
    open_ = {(one.node_uid, one.boot_id): one for one in notices if one.state.holds}
    found = []
    for end in ends:
        record = end.record
        notice = open_.get((record.uid, record.boot_id))
        if notice is not None and notice.kind is NoticeKind.REBALANCE:
            notice = None
        removed = notice.kind is NoticeKind.REMOVAL if notice is not None else record.cordoned
        found.append(Departure(record.name, not removed, record.silent_since or now, notice))
    return found


def count(status: SpotPoolStatus, found: Sequence[Departure], false_alarms: int, now: datetime) -> None:
    """Add the departures and the wrong notices to the counts in the status."""
    before = status.preemptions
    preempted = [one for one in found if one.preempted]
    with_notice = [one for one in preempted if one.notice is not None]
    status.preemptions = Preemptions(
        total=before.total + len(preempted),
        with_notice=before.with_notice + len(with_notice),
        without_notice=before.without_notice + len(preempted) - len(with_notice),
        false_alarms=before.false_alarms + false_alarms,
        removals=before.removals + len(found) - len(preempted),
        returned=before.returned,
        last_at=now if preempted else before.last_at,
    )
    internal = status.internal
    recent = [time for time in internal.interruptions if (now - time).total_seconds() < WINDOW_SECONDS]
    internal.interruptions = [*recent, *[now] * len(preempted)][-MAX_NODES - 1 :]
    leads = [(one.at - one.notice.at).total_seconds() for one in with_notice if one.notice is not None]
    internal.notice_seconds = [*internal.notice_seconds, *[max(0.0, lead) for lead in leads]][-MAX_SAMPLES:]
    if internal.notice_seconds:
        samples = internal.notice_seconds
        status.notice_seconds = NoticeSeconds(p50=statistics.median(samples), min=min(samples))


def count_returned(status: SpotPoolStatus, returned: Iterable[NodeRecord]) -> None:
    """Count the nodes that have come back. Their losses say nothing about spot capacity, so they do not count
    as interruptions any more.
    """
    times = status.internal.interruptions
    for record in returned:
        status.preemptions.returned += 1
        if record.lost_at in times:
            times.remove(record.lost_at)


def ended(notices: Iterable[NodeNotice], found: Iterable[Departure]) -> list[NodeNotice]:
    """Return the notices of the nodes that have left, in the state Gone."""
    left = {(one.notice.node_uid, one.notice.boot_id) for one in found if one.notice is not None}
    return [
        one.model_copy(update={"state": NoticeState.GONE})
        for one in notices
        if (one.node_uid, one.boot_id) in left
    ]
