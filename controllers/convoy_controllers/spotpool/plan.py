"""Makes the plan of a SpotPool: its status, and the evictions of its pods. Pure.

The status is stored first. The controller of node marks taints the noticed nodes from the stored status, so
no taint stays on a node by mistake.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from convoy_controllers.cached import Node
from convoy_controllers.children import Event, EvictPod
from convoy_controllers.plan import Plan
from convoy_controllers.spotpool import (
    accounting,
    budgets,
    capacity,
    conditions,
    draining,
    grants,
    noticing,
    preemptions,
    prices,
)
from convoy_controllers.spotpool.node_notices import marks
from convoy_controllers.spotpool.node_records import Followed, follow
from convoy_controllers.spotpool.notice import Notice
from convoy_controllers.spotpool.observed import Account, Observed
from convoy_controllers.spotpool.preemptions import Departure
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.spot_prices import PriceSchedule
from convoy_crds.spotpool_status import (
    Grant,
    NodeNotice,
    NoticeKind,
    NoticeState,
    PriceStatus,
    SpotNodes,
    SpotPoolStatus,
)

TICK_SECONDS = 10.0
"""Maximum seconds between two accounts while the pool has nodes."""
STORE_SECONDS = 30.0
"""Seconds between two writes of a status in which only the cost grows."""
COST_FIELDS = frozenset({"cost", "provisional"})
"""Status fields that change all the time."""
IDLE_SECONDS = 60.0
"""Seconds between two reconciles of a pool without nodes."""
DRAIN_SECONDS = 1.0
"""Seconds between two evictions of the same pods, because the API server may refuse an eviction."""
MAX_EVENTS = 8
"""Maximum number of Events of one plan. The counts in the status include all."""


def plan(observed: Observed, now: datetime) -> Plan:
    """Return the status of the pool, and the pods that must leave their nodes."""
    now = now.replace(microsecond=0)
    pool = observed.pool
    status = pool.status.model_copy(deep=True)
    status.observed_generation = pool.metadata.generation or 0
    schedule = prices.schedule(pool.spec.price, observed.trace, now.timestamp())
    found = accounting.account(observed, schedule, now)
    followed = follow(pool.status.internal.nodes, observed.nodes, observed.existing, now)
    noticed = noticing.merge(pool.status.notices, observed.nodes, _signals(observed), pool.spec, now)
    left = preemptions.departures(followed.ends, pool.status.notices, now)
    preemptions.count(status, left, len(noticed.false_alarms), now)
    preemptions.count_returned(status, followed.returned)
    status.internal.nodes = list(followed.records)
    status.internal.on_demand = [node.uid for node in observed.on_demand]
    status.notices = noticing.bounded(noticed.notices, _past(pool.status, noticed.notices, left))
    _show_cost(observed, status, found, schedule, now)
    usable = capacity.usable(observed.nodes, noticed.notices, pool.spec)
    spent = budgets.pool_budget(pool.spec.budget, status.cost)
    wanted = 0 if spent is not None else _wanted(observed, status)
    counts = _spot_node_counts(observed, usable, wanted, status.price.per_hour)
    choice = capacity.choose(status, pool.spec.fallback, counts, wanted, now)
    kept = _kept_on_demand(observed, status, choice, schedule)
    status.grants = _grants(observed, status, choice, spent, schedule, kept)
    status.mode, status.mode_since = choice.mode, choice.since
    status.internal.short_since = choice.short_since
    status.nodes = _counts(observed, status, followed, left)
    conditions.report(observed, status, conditions.Findings(choice, spent, len(usable)), now)
    evicted = draining.leaving(observed, noticed.notices, status.grants, choice, usable, kept)
    return Plan(
        status=_stored(pool.status, status, now),
        status_first=True,
        children=tuple(EvictPod(pod.namespace, pod.name, pod.uid) for pod in evicted),
        events=tuple(_events(pool.status, status, noticed.opened, noticed.false_alarms, left))[:MAX_EVENTS],
        requeue_after=_requeue(observed, status, bool(evicted), now),
        memory=Account(status.cost, status.provisional),
    )


def _stored(before: SpotPoolStatus, after: SpotPoolStatus, now: datetime) -> dict[str, Any] | None:
    """Return the status to store; None if nothing changed, or if only the cost grew since a short time ago.
    Until then the account is kept in memory.
    """
    found, known = after.to_dict(), before.to_dict()
    changed = {name for name in {**found, **known} if found.get(name) != known.get(name)}
    at = before.cost.as_of
    recent = at is not None and 0 <= (now - at).total_seconds() < STORE_SECONDS
    return None if not changed or (changed <= COST_FIELDS and recent) else found


def _signals(observed: Observed) -> list[Notice]:
    """Return all notices that hold at present."""
    if not observed.pool.spec.notice.taints:
        return list(observed.notices)
    return [*observed.notices, *(notice for node in observed.nodes for notice in marks(node))]


def _past(
    before: SpotPoolStatus, present: Iterable[NodeNotice], left: Sequence[Departure]
) -> list[NodeNotice]:
    """Return the notices about nodes that have left."""
    keys = {(one.node_uid, one.boot_id) for one in present}
    gone = [one for one in before.notices if one.state is NoticeState.GONE]
    fresh = preemptions.ended(before.notices, left)
    return [one for one in (*fresh, *gone) if (one.node_uid, one.boot_id) not in keys]


def _show_cost(
    observed: Observed, status: SpotPoolStatus, found: Account, schedule: PriceSchedule, now: datetime
) -> None:
    moment = now.timestamp()
    value = schedule.spot(moment, moment)
    status.price = PriceStatus(
        per_hour=schedule.price(moment, moment), known=value is not None, as_of=_time(schedule.as_of, now)
    )
    records = {one.uid: one for one in status.internal.nodes}
    on_demand = sum(observed.share(uid) for uid in status.internal.on_demand)
    status.cost = found.cost.model_copy(
        update={
            "provisional": accounting.provisional_cost(found.provisional),
            "per_hour": accounting.per_hour(records, on_demand, schedule, moment),
        }
    )
    status.provisional = list(found.provisional)


def _time(seconds: float | None, now: datetime) -> datetime | None:
    return None if seconds is None else now + timedelta(seconds=round(seconds - now.timestamp()))


def _wanted(observed: Observed, status: SpotPoolStatus) -> int:
    """Return the number of pods that may be granted and that jobs want."""
    spec = observed.pool.spec
    spent = budgets.namespace_budgets(spec.budget, status.cost)
    return sum(
        one.wanted
        for one in observed.claims
        if spec.allows(one.namespace) and not one.trainer_nodes and one.namespace not in spent
    )


def _spot_node_counts(
    observed: Observed, usable: Sequence[Node], wanted: int, price: float
) -> capacity.SpotNodeCounts:
    spec = observed.pool.spec
    most, _ = grants.limits(observed.pool, budgets.affordable_nodes(spec.budget, price))
    names = {node.name for node in usable}
    used = sum(pod.node in names for pod in observed.pods)
    needed = math.ceil(min(wanted, most) / spec.pods_per_node)
    return capacity.SpotNodeCounts(len(usable), needed, room=used < len(usable) * spec.pods_per_node)


def _grants(
    observed: Observed,
    status: SpotPoolStatus,
    choice: capacity.Choice,
    spent: budgets.Spent | None,
    schedule: PriceSchedule,
    kept: int,
) -> list[Grant]:
    pool = observed.pool
    budget, spot_price = pool.spec.budget, status.price.per_hour
    if choice.spot:
        # Pods on on-demand nodes may stay for long, so only the further nodes cost the spot price.
        affordable = budgets.affordable_nodes(budget, spot_price, kept, schedule.on_demand)
    else:
        # Pods on spot nodes stay there, so only the further nodes cost the on-demand price.
        used = _spot_nodes_in_use(observed)
        affordable = budgets.affordable_nodes(budget, schedule.on_demand, used, spot_price)
    most, field = grants.limits(pool, affordable)
    namespaces = budgets.namespace_budgets(pool.spec.budget, status.cost)
    within = grants.Limits(most, field, choice.mode, spent, namespaces)
    return grants.distribute(pool, observed.claims, status.cost, within)


def _kept_on_demand(
    observed: Observed, status: SpotPoolStatus, choice: capacity.Choice, schedule: PriceSchedule
) -> int:
    """Return the number of on-demand nodes that may keep their pods."""
    there = len(observed.on_demand)
    if not choice.spot:
        return there
    cost = _spot_nodes_in_use(observed) * status.price.per_hour
    return budgets.kept_on_demand(observed.pool.spec.budget, there, schedule.on_demand, cost)


def _spot_nodes_in_use(observed: Observed) -> int:
    return len({pod.node for pod in observed.pods} & {node.name for node in observed.nodes})


def _counts(
    observed: Observed, status: SpotPoolStatus, followed: Followed, left: Sequence[Departure]
) -> SpotNodes:
    open_ = {
        one.node_uid: one.state
        for one in status.notices
        if one.state.holds and one.kind is not NoticeKind.REBALANCE
    }
    gone = observed.pool.status.nodes.gone + len(left) - len(followed.returned)
    counts = SpotNodes(gone=gone, on_demand=len(observed.on_demand))
    for record in followed.records:
        state = open_.get(record.uid)
        if record.lost_at is not None:
            counts.lost += 1
        elif state is NoticeState.DRAINING:
            counts.draining += 1
        elif state is NoticeState.NOTICED:
            counts.noticed += 1
        elif not record.booted:
            counts.booting += 1
        elif record.silent_since is None:
            counts.ready += 1
    return counts


def _requeue(observed: Observed, status: SpotPoolStatus, evicting: bool, now: datetime) -> float:
    waits = [TICK_SECONDS if observed.nodes or observed.on_demand else IDLE_SECONDS]
    if evicting:
        waits.append(DRAIN_SECONDS)
    surrender = timedelta(seconds=observed.pool.spec.drain.surrender_seconds)
    for notice in status.notices:
        if notice.state is NoticeState.NOTICED and notice.deadline is not None:
            waits.append((notice.deadline - surrender - now).total_seconds())
    return max(DRAIN_SECONDS, min(waits))


def _events(
    before: SpotPoolStatus,
    after: SpotPoolStatus,
    opened: Iterable[NodeNotice],
    false_alarms: Iterable[NodeNotice],
    left: Iterable[Departure],
) -> Iterator[Event]:
    for notice in opened:
        reason = Reasons.SPOT_NOTICE
        sources = ", ".join(notice.sources)
        until = f"by {notice.deadline:%H:%M:%S} UTC" if notice.deadline else "soon"
        yield Event(reason, reason.format(node=notice.node, kind=notice.kind, sources=sources, until=until))
    for notice in false_alarms:
        reason = Reasons.SPOT_FALSE_NOTICE
        yield Event(reason, reason.format(node=notice.node, sources=", ".join(notice.sources)))
    for one in left:
        if one.preempted:
            reason = Reasons.SPOT_PREEMPTED
            how = "after a notice" if one.notice is not None else "without a notice"
            yield Event(reason, reason.format(node=one.name, how=how))
    yield from conditions.events(before, after)
