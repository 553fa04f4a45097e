"""Compares the cost of a pool with its budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.spotpool import SpotBudget
from convoy_crds.spotpool_status import SpotCost

ROUNDING = 1e-9
"""Amount below which a difference of money is a rounding error."""


@dataclass(frozen=True, slots=True)
class Spent:
    """A budget that is spent."""

    reason: Reason
    message: str


def pool_budget(budget: SpotBudget, cost: SpotCost) -> Spent | None:
    """Return the budget of the whole pool if it is spent."""
    total = cost.spot + cost.on_demand
    if budget.max_spend is None or total < budget.max_spend - ROUNDING:
        return None
    reason = Reasons.POOL_BUDGET_SPENT
    return Spent(reason, reason.format(limit=f"{budget.max_spend:g}"))


def namespace_budgets(budget: SpotBudget, cost: SpotCost) -> Mapping[str, Spent]:
    """Return the spent budgets of namespaces, by namespace."""
    if budget.per_namespace is None:
        return {}
    limit, reason = budget.per_namespace.max_spend, Reasons.NAMESPACE_BUDGET_SPENT
    return {
        one.namespace: Spent(reason, reason.format(namespace=one.namespace, limit=f"{limit:g}"))
        for one in cost.by_namespace
        if one.spend >= limit - ROUNDING
    }


def affordable_nodes(budget: SpotBudget, price: float, used: int = 0, used_price: float = 0.0) -> int | None:
    """Return the number of nodes that `budget.maxSpendPerHour` allows; None without a limit. `used` of them
    cost `used_price`, and the others `price`.
    """
    limit = budget.max_spend_per_hour
    if limit is None:
        return None
    if used * used_price > limit + ROUNDING:
        return int(limit / used_price + ROUNDING)
    return used + int((limit - used * used_price) / price + ROUNDING)


def kept_on_demand(budget: SpotBudget, nodes: int, price: float, spot_price_sum: float) -> int:
    """Return how many of `nodes` on-demand nodes may keep their pods after the return to spot nodes, so that
    `budget.maxSpendPerHour` also pays for the spot nodes in use. `spot_price_sum`: their price per hour.
    """
    limit = budget.max_spend_per_hour
    if limit is None:
        return nodes
    return max(0, min(nodes, int((limit - spot_price_sum) / price + ROUNDING)))
