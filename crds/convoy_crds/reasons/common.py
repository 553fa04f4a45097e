"""Reasons that several kinds use."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class CommonReasons:
    """Reasons that several kinds use."""

    ACCEPTED = Reason("Accepted", "the spec is valid")
    INVALID_SPEC = Reason("InvalidSpec", "{path}: {why}", warning=True)
    RECONCILE_FAILED = Reason(
        "ReconcileFailed",
        "Convoy failed to reconcile this object because of an internal error: {why}. Convoy tries again; "
        "please report the error",
        warning=True,
    )
