"""Decides which jobs need a person's attention, and for which reasons. These reasons stand for problems
that neither Convoy nor waiting can solve.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob_status import TERMINAL

REASONS = frozenset(
    reason.name
    for reason in (
        # These reasons mean that the spec must be corrected, or that an object that the spec names must be
        # created.
        Reasons.UNKNOWN_ENGINE,
        Reasons.ENGINE_NOT_READY,
        Reasons.WRONG_ROLE_KIND,
        Reasons.UNKNOWN_STORE,
        Reasons.STORE_NOT_ALLOWED,
        Reasons.NOTHING_TO_RESUME,
        Reasons.INVALID_PARAMS,
        Reasons.INVALID_SPEC,
        Reasons.SPEC_CHANGED,
        Reasons.ADVICE_DENIED,
        Reasons.POD_REJECTED,
        Reasons.POD_CONFLICT,
        Reasons.IMAGE_PULL,
        Reasons.CONTAINER_CONFIG,
        Reasons.CONTAINER_FAILING,
        Reasons.POD_NOT_STARTING,
        # These reasons mean that the cluster cannot place the pods as the spec asks, or that nobody does.
        Reasons.GANG_MISSING,
        Reasons.GANG_SPLIT,
        Reasons.GANG_REFUSED,
        Reasons.GANG_IGNORED,
        Reasons.SCHEDULER_MISSING,
        Reasons.UNKNOWN_TOPOLOGY_KEY,
        Reasons.NEVER_TOGETHER,
        Reasons.QUEUE_MISSING,
        Reasons.QUEUE_INACTIVE,
        Reasons.QUEUE_REFUSED,
        Reasons.QUEUE_PRIORITY_MISSING,
        Reasons.QUEUE_CONFLICT,
        Reasons.QUEUE_CAPTURED,
        # These reasons mean that there is no capacity, or no agent.
        Reasons.UNSCHEDULABLE,
        Reasons.SCHEDULE_DEADLINE,
        Reasons.SCHEDULE_RETRY,
        Reasons.WAITING_FOR_AGENT,
        # These reasons mean that the job restarts again and again, or must not restart.
        Reasons.BACK_OFF,
        Reasons.FENCING_COMPANY,
        Reasons.FENCING_ANSWERED,
        # These reasons mean that Independent pods are missing.
        Reasons.INDEPENDENT_BELOW_MINIMUM,
        Reasons.INDEPENDENT_NOT_STARTING,
        Reasons.INDEPENDENT_GIVEN_UP,
        Reasons.INDEPENDENT_REFUSED,
        # These reasons mean that a SpotPool grants no pods.
        Reasons.UNKNOWN_POOL,
        Reasons.POOL_NOT_ALLOWED,
        Reasons.POOL_HOLDS_GROUP,
        Reasons.POOL_NAMESPACES,
        Reasons.POOL_BUDGET_SPENT,
        Reasons.NAMESPACE_BUDGET_SPENT,
        # These reasons mean that the job's state is not saved as the spec asks.
        Reasons.NO_PEER,
        Reasons.NO_CHECKPOINT_MEMORY,
        Reasons.CHECKPOINTS_LOST,
        Reasons.INEXACT_JOURNAL,
        Reasons.NOT_STORED,
        Reasons.NOT_COPIED,
        Reasons.OVERDUE,
        Reasons.STORE_UNAVAILABLE,
        Reasons.STORE_NOT_READY,
        Reasons.SUSPENDED_UNSAVED,
        # These reasons mean that the job is slow, or that slow ranks cannot be detected reliably.
        Reasons.STRAGGLER,
        Reasons.SUSPECTED_STRAGGLER,
        Reasons.DETECTOR_DEGRADED,
    )
)


def needed(status: Mapping[str, Any]) -> set[str]:
    """Return the reasons for which the job with this stored status needs a person; empty if it needs
    nobody.
    """
    if status.get("phase") in TERMINAL:
        return set()
    conditions = status.get("conditions") or ()
    return {status.get("reason"), *(one.get("reason") for one in conditions)} & REASONS
