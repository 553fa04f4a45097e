"""Adds up the cost of the pool's nodes.

A spot node costs from its creation to its deletion, or until it is lost. If a lost node comes back without a
reboot, the time since then counts too. An on-demand node costs while it runs pods of the pool. Pools that use
it at the same time share its cost equally. Each second of a node belongs to the namespaces whose pods use the
node, or is unused. Time that Convoy did not observe is the residual. So the parts always add up to the whole.

While the spot price is unknown, the on-demand price counts. Convoy notes these seconds and their cost in
spans of time, and replaces the cost of a span as soon as the mean price of its time is known. So prices that
always come late correct all but the newest spans, and a change of the on-demand price corrects none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from convoy_controllers.cached import Node
from convoy_controllers.spotpool.node_records import has_returned
from convoy_controllers.spotpool.observed import Account, Observed
from convoy_crds.spot_prices import SECONDS_PER_HOUR, PriceSchedule
from convoy_crds.spotpool_status import MAX_SPANS, NamespaceSpend, NodeRecord, ProvisionalCost, SpotCost

GAP_SECONDS = 60.0
"""Seconds without any account after which the time since the last one counts as not observed."""
SETTLED_SECONDS = 86_400.0
"""Seconds after which a cost at the on-demand price is final, even if the spot price becomes known later."""
SPAN_SECONDS = 7200.0
"""Length of a span of provisional cost, after which the next one begins."""
UNUSED, UNOBSERVED = "", "*"
"""Names under which unused and unobserved time are added up."""


@dataclass(slots=True)
class _Totals:
    """Costs and provisional seconds that are being added up."""

    spot: float
    on_demand: float
    users: dict[str, float]
    provisional: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Node-seconds that count at the on-demand price for now, by user."""


def account(observed: Observed, schedule: PriceSchedule, now: datetime) -> Account:
    """Return the account up to `now`."""
    base = _base(observed)
    until = now.timestamp()
    since = base.cost.as_of.timestamp() if base.cost.as_of else until
    since = min(since, until)
    observed_all = observed.account is not None or until - since <= GAP_SECONDS
    totals = _totals(base)
    users_of = _users_by_node(observed)
    for name, begin in _spot_nodes(observed, since, until):
        seen = observed_all and until - begin <= max(GAP_SECONDS, until - since)
        users = users_of.get(name, (UNUSED,)) if seen else (UNOBSERVED,)
        _add_spot(totals, schedule, users, (begin, until))
    names = {node.uid: node.name for node in observed.on_demand}
    for uid in observed.pool.status.internal.on_demand:
        # A node that the pool has just left costs until now, as a spot node does.
        users = users_of.get(names.get(uid, ""), (UNUSED,)) if observed_all else (UNOBSERVED,)
        cost = (until - since) * schedule.on_demand * observed.share(uid) / SECONDS_PER_HOUR
        totals.on_demand += cost
        _share(totals.users, users, cost)
    open_ = [one for one in base.provisional if not _rerated(one, totals, schedule, until)]
    noted = _noted(open_, totals.provisional, schedule, (since, until))
    return Account(_cost(observed, totals, now), noted)


def _base(observed: Observed) -> Account:
    """Return the newest known account: that of the last plan, or the stored one."""
    status, memory = observed.pool.status, observed.account
    stored = status.cost.as_of
    if (
        memory is not None
        and memory.cost.as_of is not None
        and (stored is None or memory.cost.as_of >= stored)
    ):
        return memory
    return Account(status.cost, status.provisional)


def _totals(base: Account) -> _Totals:
    users = {one.namespace: one.spend for one in base.cost.by_namespace}
    users[UNUSED], users[UNOBSERVED] = base.cost.unused, base.cost.residual
    return _Totals(base.cost.spot, base.cost.on_demand, users)


def _spot_nodes(observed: Observed, since: float, until: float) -> Iterator[tuple[str, float]]:
    """Yield the name of each node that costs, and the time from which the account lacks its cost.

    A node that has just left costs until now: its end is noticed at once while an operator runs.
    """
    known = {one.uid: one for one in observed.pool.status.internal.nodes}
    created = observed.pool.metadata.creation_timestamp
    first = created.timestamp() if created else since
    present = {node.uid for node in observed.nodes}
    for node in observed.nodes:
        record = known.get(node.uid)
        if record is None:
            yield node.name, min(until, max(first, _created(node, until)))
        elif record.lost_at is None:
            yield node.name, since
        elif has_returned(record, node):
            yield node.name, min(until, record.lost_at.timestamp())
    for record in known.values():
        if record.uid not in present and record.lost_at is None:
            yield record.name, since


def _created(node: Node, until: float) -> float:
    return node.created.timestamp() if node.created is not None else until


def _users_by_node(observed: Observed) -> dict[str, tuple[str, ...]]:
    """Return the namespaces whose pods use each node, by name of the node."""
    found: dict[str, set[str]] = defaultdict(set)
    for pod in observed.pods:
        found[pod.node].add(pod.namespace)
    return {node: tuple(sorted(namespaces)) for node, namespaces in found.items()}


def _add_spot(
    totals: _Totals, schedule: PriceSchedule, users: tuple[str, ...], span: tuple[float, float]
) -> None:
    begin, until = span
    cost = schedule.cost(begin, until, until)
    totals.spot += cost
    _share(totals.users, users, cost)
    _share(totals.provisional, users, schedule.unknown_seconds(begin, until, until))


def _share(into: dict[str, float], users: tuple[str, ...], amount: float) -> None:
    for user in users:
        into[user] = into.get(user, 0.0) + amount / len(users)


def _rerated(noted: ProvisionalCost, totals: _Totals, schedule: PriceSchedule, until: float) -> bool:
    """Correct the cost of the noted seconds if the price of their time is known by now. Return True if the
    cost is final.
    """
    begin, end = noted.since.timestamp(), noted.until.timestamp()
    if until - begin > SETTLED_SECONDS:
        return True
    if end <= begin or schedule.unknown_seconds(begin, end, until) > 0:
        return False
    mean = schedule.cost(begin, end, until) / (end - begin) * SECONDS_PER_HOUR
    for user, amount in noted.seconds.items():
        change = amount * mean / SECONDS_PER_HOUR - noted.cost.get(user, 0.0)
        totals.spot += change
        totals.users[user] = totals.users.get(user, 0.0) + change
    return True


def _noted(
    before: Sequence[ProvisionalCost],
    provisional: Mapping[str, float],
    schedule: PriceSchedule,
    span: tuple[float, float],
) -> list[ProvisionalCost]:
    """Return the spans with the seconds that this account adds. While the newest span is short, it grows."""
    seconds = {user: amount for user, amount in provisional.items() if amount > 0}
    if not seconds:
        return list(before)
    cost = {user: amount * schedule.on_demand / SECONDS_PER_HOUR for user, amount in seconds.items()}
    begin, end = (datetime.fromtimestamp(moment, UTC) for moment in span)
    if not before or (len(before) < MAX_SPANS and not _continues(before[-1], *span)):
        return [*before, ProvisionalCost(since=begin, until=end, seconds=seconds, cost=cost)]
    newest = before[-1]
    sums = {"seconds": _sum(newest.seconds, seconds), "cost": _sum(newest.cost, cost)}
    return [*before[:-1], newest.model_copy(update={"until": end, **sums})]


def _sum(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {user: one.get(user, 0.0) + other.get(user, 0.0) for user in (*one, *other)}


def _continues(newest: ProvisionalCost, since: float, until: float) -> bool:
    """Return True if the time from `since` to `until` belongs to the newest span."""
    gap = since - newest.until.timestamp()
    return gap < GAP_SECONDS and until - newest.since.timestamp() <= SPAN_SECONDS


def _cost(observed: Observed, totals: _Totals, now: datetime) -> SpotCost:
    users = totals.users
    return SpotCost(
        currency=observed.pool.spec.price.currency or "",
        spot=totals.spot,
        on_demand=totals.on_demand,
        by_namespace=[
            NamespaceSpend(namespace=name, spend=spend)
            for name, spend in sorted(users.items())
            if name not in (UNUSED, UNOBSERVED)
        ],
        unused=users[UNUSED],
        residual=users[UNOBSERVED],
        as_of=now,
    )


def provisional_cost(noted: Iterable[ProvisionalCost]) -> float:
    """Return the cost that the noted seconds count as."""
    return sum(sum(one.cost.values()) for one in noted)


def per_hour(
    records: Mapping[str, NodeRecord], on_demand: float, schedule: PriceSchedule, now: float
) -> float:
    """Return the cost per hour of the nodes that cost at `now`. `on_demand`: number of on-demand nodes; a
    shared one is a fraction.
    """
    present = sum(one.lost_at is None for one in records.values())
    return present * schedule.price(now, now) + on_demand * schedule.on_demand
