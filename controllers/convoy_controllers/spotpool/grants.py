"""Distributes the pool's capacity to the roles that claim it. Older jobs come first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from convoy_controllers.spotpool.budgets import Spent
from convoy_controllers.spotpool.observed import Claim
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.spotpool import SpotPool
from convoy_crds.spotpool_status import MAX_GRANTS, MAX_NAMESPACES, CapacityMode, Grant, SpotCost


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits within which capacity is granted."""

    pods: int
    """Number of pods that the pool may have at present."""
    why: str
    """Field that sets this number."""
    mode: CapacityMode
    pool: Spent | None = None
    """The budget of the pool, if it is spent."""
    namespaces: Mapping[str, Spent] | None = None
    """The spent budgets of namespaces, by namespace."""


def limits(pool: SpotPool, affordable: int | None) -> tuple[int, str]:
    """Return the maximum number of pods of the pool, and the field that sets it."""
    spec = pool.spec
    if affordable is not None and affordable < spec.max_nodes:
        return affordable * spec.pods_per_node, "spec.budget.maxSpendPerHour"
    return spec.max_nodes * spec.pods_per_node, "spec.maxNodes"


def distribute(pool: SpotPool, claims: Iterable[Claim], cost: SpotCost, within: Limits) -> list[Grant]:
    """Return a grant for each claim, at most MAX_GRANTS."""
    left = within.pods
    known = {one.namespace for one in cost.by_namespace}
    found: list[Grant] = []
    for claim in sorted(claims, key=lambda one: (one.since, *one.key))[:MAX_GRANTS]:
        refusal = _refusal(pool, claim, within)
        if refusal is None and claim.namespace not in known:
            if len(known) >= MAX_NAMESPACES:
                reason = Reasons.POOL_NAMESPACES
                refusal = reason, reason.format(pool=pool.metadata.name, limit=MAX_NAMESPACES)
            known.add(claim.namespace)
        pods = 0 if refusal else min(claim.wanted, left)
        if refusal is None and pods < claim.wanted:
            reason = Reasons.POOL_FULL
            refusal = (
                reason,
                reason.format(
                    pool=pool.metadata.name,
                    pods=pods,
                    wanted=claim.wanted,
                    most=within.pods,
                    field=within.why,
                ),
            )
        left -= pods
        found.append(_grant(claim, pods, within.mode, refusal))
    return found


def _refusal(pool: SpotPool, claim: Claim, within: Limits) -> tuple[Reason, str] | None:
    name = pool.metadata.name
    if not pool.spec.allows(claim.namespace):
        reason = Reasons.POOL_NOT_ALLOWED
        return reason, reason.format(pool=name, namespace=claim.namespace)
    if claim.trainer_nodes:
        reason = Reasons.POOL_HOLDS_GROUP
        return reason, reason.format(pool=name, nodes=_some(claim.trainer_nodes))
    spent = within.pool or (within.namespaces or {}).get(claim.namespace)
    return (spent.reason, f"SpotPool {name!r}: {spent.message}") if spent is not None else None


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _grant(claim: Claim, pods: int, mode: CapacityMode, refusal: tuple[Reason, str] | None) -> Grant:
    return Grant(
        namespace=claim.namespace,
        job=claim.job,
        role=claim.role,
        pods=pods,
        mode=mode,
        reason=refusal[0].name if refusal else "",
        message=refusal[1][:1024] if refusal else "",
    )
