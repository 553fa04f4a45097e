"""Reasons that more than one kind carries."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class CommonReasons:
    """Reasons that more than one kind carries."""

    ACCEPTED = Reason("Accepted", "the spec is valid")
    INVALID_SPEC = Reason("InvalidSpec", "{path}: {why}", warning=True)
    RECONCILE_FAILED = Reason(
        "ReconcileFailed",
        "Convoy failed to work on this object, a fault of its own: {why}; it is tried again, please report",
        warning=True,
    )
