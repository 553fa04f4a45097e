"""Merges the notices of all sources into one record per node and boot.

The earliest deadline wins. A program's report can only bring a deadline forward: the program does not know
the provider's plans. A repeated notice has no effect of its own. A notice that proves wrong, or that all its
sources withdraw, is closed: then only a notice that starts after that opens a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from convoy_controllers.cached import Node
from convoy_controllers.spotpool.node_notices import NoticeIndex
from convoy_controllers.spotpool.notice import Notice
from convoy_crds.spotpool import NoticeSettings, Rebalance, SpotPoolSpec
from convoy_crds.spotpool_status import (
    MAX_PAST_NOTICES,
    NodeNotice,
    NoticeKind,
    NoticeSource,
    NoticeState,
)

MAX_NOTICE_SECONDS = 3600.0
"""Maximum time that a notice may leave, in seconds. A later deadline counts as this one."""
FALSE_ALARM_SECONDS = 60.0
"""Seconds after the deadline at which a node that is still ready proves the notice wrong."""
WITHDRAWN_SECONDS = 30.0
"""Seconds without any source after which a notice counts as withdrawn. A new leader of the operator gets the
agents' reports again within this time.
"""
_MARKS = (NoticeSource.TAINT, NoticeSource.CONDITION)
"""Sources that stay on the Node, also after a reboot, until somebody removes them."""
_ORDER = (NoticeKind.REBALANCE, NoticeKind.REMOVAL, NoticeKind.PREEMPTION)


@dataclass(frozen=True, slots=True)
class Noticed:
    """The notices about the present nodes."""

    notices: tuple[NodeNotice, ...]
    opened: tuple[NodeNotice, ...]
    """Notices that are new, or more serious than before."""
    false_alarms: tuple[NodeNotice, ...]
    """Notices that have just proved wrong."""


def merge(
    before: Sequence[NodeNotice],
    nodes: Iterable[Node],
    signals: Sequence[Notice],
    spec: SpotPoolSpec,
    now: datetime,
) -> Noticed:
    """Return the notices about the present nodes. `signals`: the notices that hold at present."""
    known = {(one.node_uid, one.boot_id): one for one in before if one.state is not NoticeState.GONE}
    earlier = {one.node_uid: one for one in known.values() if one.boot_id}
    index = NoticeIndex(signals)
    found, opened, false = [], [], []
    for node in nodes:
        old = known.get((node.uid, node.boot_id))
        present = index.about(node)
        if old is None and (last := earlier.get(node.uid)) is not None and node.boot_id:
            old = _left_over(last, node, present, spec.notice, now)
        new = _after(old, node, present, spec.notice, now) if old or present else None
        if new is None:
            continue
        new = _advanced(new, node, spec, now)
        if new.state.holds and (old is None or not old.state.holds or old.kind is not new.kind):
            opened.append(new)
        if new.state is NoticeState.FALSE_ALARM and (old is None or old.state is not NoticeState.FALSE_ALARM):
            false.append(new)
        found.append(new)
    return Noticed(tuple(found), tuple(opened), tuple(false))


def _left_over(
    last: NodeNotice, node: Node, present: Sequence[Notice], settings: NoticeSettings, now: datetime
) -> NodeNotice | None:
    """Return a closed record of the marks that the Node carries from its earlier boot; None without any.
    Their end has come with the reboot, so they say nothing about this boot.
    """
    marks = [one for one in present if one.source in _MARKS and one.source in last.sources]
    if not marks:
        return None
    return _opened(node, marks, settings, now).model_copy(update={"state": NoticeState.WITHDRAWN})


def closes_node(notice: NodeNotice, settings: NoticeSettings) -> bool:
    """Return True if the noticed node must get no more pods."""
    if notice.kind is NoticeKind.REBALANCE:
        return notice.state.holds and settings.rebalance is Rebalance.CORDON
    return notice.state.holds


def bounded(present: Iterable[NodeNotice], past: Iterable[NodeNotice]) -> list[NodeNotice]:
    """Return the notices for the status: all about present nodes first, then the latest others."""
    live = sorted(present, key=lambda one: (not one.state.holds, -one.at.timestamp(), one.node))
    gone = sorted(past, key=lambda one: -one.at.timestamp())
    return [*live, *gone[:MAX_PAST_NOTICES]]


def _after(
    old: NodeNotice | None, node: Node, present: Sequence[Notice], settings: NoticeSettings, now: datetime
) -> NodeNotice | None:
    """Return the record with the present notices merged in."""
    if old is None:
        return _opened(node, present, settings, now)
    sources = {one.source for one in present}
    if not old.state.holds:
        fresh = [one for one in present if one.source not in old.sources]
        if fresh:
            return _opened(node, fresh, settings, now)
        return old.model_copy(update={"sources": _sorted(sources & set(old.sources))})
    if not present:
        return old.model_copy(update={"silent_since": old.silent_since or now})
    merged = _opened(node, present, settings, now)
    added = sources - set(old.sources)
    kept = old.model_copy(
        update={
            "sources": _sorted(sources | set(old.sources)),
            "repeats": old.repeats + len(added),
            "silent_since": None,
        }
    )
    if _ORDER.index(merged.kind) > _ORDER.index(old.kind):
        kept.kind = merged.kind
    if old.kind is NoticeKind.REBALANCE and kept.kind is not NoticeKind.REBALANCE:
        kept.at, kept.deadline = merged.at, merged.deadline
        kept.assumed = merged.assumed
    elif kept.deadline is not None and merged.deadline is not None:
        if kept.assumed and any(map(_gives_deadline, present)):
            kept.deadline, kept.assumed = merged.deadline, None
        elif kept.assumed or not merged.assumed or set(old.sources) == {NoticeSource.RAY}:
            kept.deadline = min(kept.deadline, merged.deadline)
            kept.assumed = kept.assumed or merged.assumed
    return kept


def _opened(node: Node, present: Sequence[Notice], settings: NoticeSettings, now: datetime) -> NodeNotice:
    kind = max((one.kind for one in present), key=_ORDER.index)
    known = [one for one in present if one.kind is not NoticeKind.REBALANCE]
    assumed = not any(map(_gives_deadline, known)) and any(not one.deadline for one in known)
    ends = [one.deadline for one in known if one.deadline]
    if assumed:
        ends.append(now.timestamp() + settings.min_seconds)
    return NodeNotice(
        node=node.name,
        node_uid=node.uid,
        boot_id=node.boot_id,
        kind=kind,
        at=now,
        deadline=_deadline(min(ends), now) if ends else None,
        assumed=assumed or None,
        sources=_sorted({one.source for one in present}),
    )


def _gives_deadline(notice: Notice) -> bool:
    """Return True if the provider, and not a program, gives the deadline."""
    dated = notice.deadline > 0 and notice.kind is not NoticeKind.REBALANCE
    return dated and notice.source is not NoticeSource.RAY


def _deadline(seconds: float, now: datetime) -> datetime:
    latest = now + timedelta(seconds=MAX_NOTICE_SECONDS)
    if not 0 <= seconds < latest.timestamp():
        return latest if seconds > 0 else now
    return datetime.fromtimestamp(int(seconds), UTC)


def _advanced(notice: NodeNotice, node: Node, spec: SpotPoolSpec, now: datetime) -> NodeNotice:
    """Return the notice in the state that it has reached at `now`."""
    if not notice.state.holds:
        return notice
    silent = notice.silent_since
    if silent is not None and (now - silent).total_seconds() >= WITHDRAWN_SECONDS:
        return notice.model_copy(update={"state": NoticeState.WITHDRAWN, "sources": []})
    if notice.deadline is None:
        return notice
    over = (now - notice.deadline).total_seconds()
    # An autoscaler may wait long for its own drain, so a planned removal never counts as wrong.
    if over >= FALSE_ALARM_SECONDS and node.ready and notice.kind is NoticeKind.PREEMPTION:
        return notice.model_copy(update={"state": NoticeState.FALSE_ALARM})
    if over >= -spec.drain.surrender_seconds:
        return notice.model_copy(update={"state": NoticeState.DRAINING})
    return notice


def _sorted(sources: Iterable[NoticeSource]) -> list[NoticeSource]:
    return [one for one in NoticeSource if one in set(sources)]
