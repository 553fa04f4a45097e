"""The conditions of a SpotPool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from convoy_controllers.children import Event
from convoy_controllers.condition_list import with_condition
from convoy_controllers.spotpool import prices
from convoy_controllers.spotpool.budgets import Spent
from convoy_controllers.spotpool.capacity import Choice
from convoy_controllers.spotpool.observed import Observed
from convoy_crds.reasons.catalogue import Reasons, all_reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.spotpool_status import CapacityMode, NoticeState, SpotPoolStatus
from convoy_crds.terms import ConditionType

_REASONS = {one.name: one for one in all_reasons()}

Finding = tuple[bool, Reason, str]
"""Status, reason and message of a condition."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The decisions that the conditions show."""

    choice: Choice
    spent: Spent | None
    """The budget of the pool, if it is spent."""
    usable: int
    """Number of spot nodes that may get pods."""


def report(observed: Observed, status: SpotPoolStatus, found: Findings, now: datetime) -> None:
    """Set all conditions of the pool."""
    price = prices.finding(observed.pool.spec.price, observed.trace, now.timestamp())
    for kind, (holds, reason, message) in {
        ConditionType.READY: _ready(observed, found),
        ConditionType.PRICE_KNOWN: (price.known, price.reason, price.message),
        ConditionType.WITHIN_BUDGET: _budget(status, found),
        ConditionType.SPOT_AVAILABLE: _available(found),
        ConditionType.NOTICES_RELIABLE: _reliable(observed, status),
    }.items():
        status.conditions = with_condition(status.conditions, kind, holds, reason, message, now)


def events(before: SpotPoolStatus, after: SpotPoolStatus) -> Iterator[Event]:
    """Yield an Event for each condition whose reason has changed."""
    known = {one.type: one.reason for one in before.conditions}
    for one in after.conditions:
        if known.get(one.type) == one.reason or (one.type not in known and one.status == "True"):
            continue
        yield Event(_REASONS[one.reason], one.message)


def _ready(observed: Observed, found: Findings) -> Finding:
    pool = observed.pool
    if found.spent is not None:
        return False, found.spent.reason, found.spent.message
    if observed.overlaps and not observed.nodes:
        reason = Reasons.POOL_OVERLAPS
        others = ", ".join(sorted(observed.overlaps)[:3])
        return False, reason, reason.format(count=sum(observed.overlaps.values()), others=others)
    if observed.fallback_overlaps:
        reason, count = Reasons.FALLBACK_OVERLAPS, sum(observed.fallback_overlaps.values())
        others = ", ".join(sorted(observed.fallback_overlaps)[:3])
        return False, reason, reason.format(count=count, others=others)
    if not observed.nodes:
        reason = Reasons.POOL_EMPTY
        return False, reason, reason.format(selector=_selector(observed))
    reason = Reasons.POOL_READY
    over = len(observed.nodes) - pool.spec.max_nodes
    remark = f"; {over} more than spec.maxNodes, which also cost money" if over > 0 else ""
    return True, reason, reason.format(usable=found.usable, nodes=len(observed.nodes), remark=remark)


def _selector(observed: Observed) -> str:
    selector = observed.pool.spec.selector
    labels = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    labels += [
        f"{one.key} {one.operator} {','.join(one.values)}".rstrip() for one in selector.match_expressions
    ]
    return "; ".join(labels)[:256]


def _budget(status: SpotPoolStatus, found: Findings) -> Finding:
    if found.spent is not None:
        return False, found.spent.reason, found.spent.message
    reason = Reasons.NAMESPACE_BUDGET_SPENT
    for grant in status.grants:
        if grant.reason == reason.name:
            return False, reason, grant.message
    for grant in status.grants:
        if grant.reason == Reasons.POOL_FULL.name and "maxSpendPerHour" in grant.message:
            reason = Reasons.HOURLY_BUDGET_REACHED
            return False, reason, reason.format(why=grant.message)
    return True, Reasons.WITHIN_BUDGET, Reasons.WITHIN_BUDGET.message


def _available(found: Findings) -> Finding:
    choice = found.choice
    holds = choice.mode is CapacityMode.SPOT and choice.reason is Reasons.SPOT_IN_USE and not choice.probe
    return holds, choice.reason, choice.message


def _reliable(observed: Observed, status: SpotPoolStatus) -> Finding:
    if observed.unread:
        reason = Reasons.SOURCE_NOT_POLLED
        node, why = min(observed.unread.items())
        source, nodes = observed.pool.spec.notice.metadata.value, len(observed.nodes)
        count = len(observed.unread)
        return False, reason, reason.format(count=count, nodes=nodes, source=source, node=node, why=why)
    wrong = [one for one in status.notices if one.state is NoticeState.FALSE_ALARM]
    if wrong:
        reason = Reasons.SPOT_FALSE_NOTICE
        one = wrong[0]
        return False, reason, reason.format(node=one.node, sources=", ".join(one.sources) or "its source")
    return True, Reasons.NOTICES_RELIABLE, Reasons.NOTICES_RELIABLE.message
