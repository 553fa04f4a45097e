"""Reasons for the state of Independent roles."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class IndependentReasons:
    """Reasons for the state of Independent roles."""

    INDEPENDENT_RUNNING = Reason("IndependentRunning", "{counts}")
    INDEPENDENT_WAITING = Reason(
        "IndependentWaiting", "the pods of Independent roles are created after the process group has formed"
    )
    INDEPENDENT_BELOW_MINIMUM = Reason(
        "IndependentBelowMinimum",
        "role {role} has {ready} running pods, fewer than spec.roles[{index}].minReplicas={minimum}; the "
        "process group runs on: {why}",
        warning=True,
    )
    INDEPENDENT_NOT_STARTING = Reason(
        "IndependentNotStarting",
        "pods of role {role} do not start, and the process group runs on: {why}",
        warning=True,
    )
    INDEPENDENT_GIVEN_UP = Reason(
        "IndependentGivenUp",
        "Convoy no longer starts {pods}: {why}. The process group runs on; correct the cause, then change "
        "spec.recovery.restartId (convoy restart)",
        warning=True,
    )
    INDEPENDENT_REFUSED = Reason(
        "IndependentRefused",
        "the API server refuses pod {pod}: {where}{why}; the process group runs on",
        warning=True,
    )
