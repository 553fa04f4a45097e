"""Which jobs wait for a person, and why: what Convoy neither mends nor will see mended by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob_status import TERMINAL

REASONS = frozenset(
    reason.name
    for reason in (
        # The spec is to be corrected, or what it names to be made.
        Reasons.UNKNOWN_ENGINE,
        Reasons.ENGINE_NOT_READY,
        Reasons.WRONG_ROLE_KIND,
        Reasons.UNKNOWN_STORE,
        Reasons.STORE_NOT_ALLOWED,
        Reasons.NOTHING_TO_RESUME,
        Reasons.INVALID_PARAMS,
        Reasons.INVALID_SPEC,
        Reasons.SPEC_CHANGED,
        Reasons.POD_REJECTED,
        Reasons.POD_CONFLICT,
        Reasons.IMAGE_PULL,
        Reasons.CONTAINER_CONFIG,
        Reasons.CONTAINER_FAILING,
        Reasons.POD_NOT_STARTING,
        # There is no room, or no agent.
        Reasons.UNSCHEDULABLE,
        Reasons.SCHEDULE_DEADLINE,
        Reasons.SCHEDULE_RETRY,
        Reasons.WAITING_FOR_AGENT,
        # It restarts again and again, or may not restart.
        Reasons.BACK_OFF,
        Reasons.FENCING_COMPANY,
        Reasons.FENCING_ANSWERED,
        # Its state is not saved as it should be.
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
        # It is slow.
        Reasons.STRAGGLER,
        Reasons.DETECTOR_DEGRADED,
    )
)


def needed(status: Mapping[str, Any]) -> set[str]:
    """Why a job with this stored status waits for a person; empty for one that is over, or well."""
    if status.get("phase") in TERMINAL:
        return set()
    conditions = status.get("conditions") or ()
    return {status.get("reason"), *(one.get("reason") for one in conditions)} & REASONS
