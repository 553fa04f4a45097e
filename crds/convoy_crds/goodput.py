"""The causes of the goodput ledger, and their totals."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from convoy_crds.trainingjob_status import Goodput


class Cause(StrEnum):
    """Activities that a second of a job's time can go to."""

    PRODUCTIVE = "productive"
    """Steps made for the first time."""
    QUEUE = "queue"
    """Waiting for capacity, or for the user to correct the spec."""
    SCHEDULE = "schedule"
    """Creating and scheduling the pods."""
    START = "start"
    """Starting containers and ranks, up to the end of the first step."""
    DETECT = "detect"
    """From a fault to the operator's decision to restart."""
    RESTART = "restart"
    """From the decision to restart to the end of the next incarnation's first step."""
    RECOMPUTE = "recompute"
    """Repeating the steps that a fault undid."""
    CHECKPOINT = "checkpoint"
    """Steps delayed by saving."""
    STRAGGLER = "straggler"
    """Steps delayed by persistent stragglers: the share of their time that the straggler detector counts as
    lost.
    """
    FINISH = "finish"
    """From the last step to the exit of the ranks: evaluation, the last save and the shutdown of Python."""
    SUSPENDED = "suspended"


def totals(ledger: Goodput, now: datetime) -> dict[str, float]:
    """Return the seconds by cause, including the time since the last transition. Their sum is the job's age
    at `now`.
    """
    found = dict(ledger.seconds)
    if ledger.since is not None and ledger.cause:
        for cause, length in split(ledger, max(0.0, (now - ledger.since).total_seconds())).items():
            found[cause] = round(found.get(cause, 0.0) + length, 3)
    return found


def split(ledger: Goodput, length: float) -> dict[str, float]:
    """Divide the seconds since the last transition between the current cause and stragglers. Return them by
    cause.
    """
    lost = round(length * ledger.straggler, 3)
    if not lost:
        return {ledger.cause: length}
    return {ledger.cause: length - lost, Cause.STRAGGLER.value: lost}
