"""The conditions of a SpotPool, and their reasons."""

from __future__ import annotations

from convoy_crds.condition_doc import EVENTS, ConditionDoc
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ConditionType

_POOL = "SpotPool"

SPOTPOOL_CONDITIONS: tuple[ConditionDoc, ...] = (
    ConditionDoc(
        _POOL,
        ConditionType.READY,
        "The pool has nodes, and its budget is not spent.",
        (
            Reasons.POOL_READY,
            Reasons.POOL_EMPTY,
            Reasons.POOL_OVERLAPS,
            Reasons.FALLBACK_OVERLAPS,
            Reasons.POOL_BUDGET_SPENT,
            Reasons.INVALID_SPEC,
        ),
        "spotpool-ready",
    ),
    ConditionDoc(
        _POOL,
        ConditionType.PRICE_KNOWN,
        "The spot price of the present time is known and not too old. If False, the on-demand price counts.",
        (
            Reasons.PRICE_KNOWN,
            Reasons.PRICE_UNDATED,
            Reasons.PRICE_STALE,
            Reasons.PRICE_GAP,
            Reasons.PRICE_TRACE_MISSING,
            Reasons.PRICE_TRACE_INVALID,
        ),
        "spotpool-price",
    ),
    ConditionDoc(
        _POOL,
        ConditionType.WITHIN_BUDGET,
        "No budget of the pool limits its jobs.",
        (
            Reasons.WITHIN_BUDGET,
            Reasons.POOL_BUDGET_SPENT,
            Reasons.NAMESPACE_BUDGET_SPENT,
            Reasons.HOURLY_BUDGET_REACHED,
        ),
        "spotpool-budget",
    ),
    ConditionDoc(
        _POOL,
        ConditionType.SPOT_AVAILABLE,
        "Pods are placed on spot nodes, and do not wait for one.",
        (
            Reasons.SPOT_IN_USE,
            Reasons.AWAITING_SPOT_NODE,
            Reasons.NO_SPOT_NODE,
            Reasons.TOO_FEW_SPOT_NODES,
            Reasons.INTERRUPTED_TOO_OFTEN,
            Reasons.ON_DEMAND_STAY,
        ),
        "spotpool-available",
    ),
    ConditionDoc(
        _POOL,
        ConditionType.NOTICES_RELIABLE,
        "The agents of all ready nodes read the metadata service, and no notice about a present node has "
        "proved wrong.",
        (Reasons.NOTICES_RELIABLE, Reasons.SOURCE_NOT_POLLED, Reasons.SPOT_FALSE_NOTICE),
        "spotpool-notices",
    ),
    ConditionDoc(
        _POOL,
        EVENTS,
        "Notices and losses of nodes.",
        (Reasons.SPOT_NOTICE, Reasons.SPOT_PREEMPTED, Reasons.RECONCILE_FAILED),
        "spotpool-notices",
    ),
)
