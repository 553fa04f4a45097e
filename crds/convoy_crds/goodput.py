"""The causes of the goodput ledger, and its sums."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from convoy_crds.trainingjob import Goodput


class Cause(StrEnum):
    """What a second of a job goes to."""

    PRODUCTIVE = "productive"
    """Steps that had not been made before."""
    QUEUE = "queue"
    """Waiting for room, or for the user to correct the spec."""
    SCHEDULE = "schedule"
    """Pods are made and placed."""
    START = "start"
    """Containers and ranks start, up to the end of the first step."""
    DETECT = "detect"
    """From a fault to the operator's decision."""
    RESTART = "restart"
    """From that decision to the end of the next incarnation's first step."""
    RECOMPUTE = "recompute"
    """Steps that a fault made undone."""
    CHECKPOINT = "checkpoint"
    """Steps held up by saving."""
    STRAGGLER = "straggler"
    """Steps held up by a slow rank."""
    SUSPENDED = "suspended"


def totals(ledger: Goodput, now: datetime) -> dict[str, float]:
    """Seconds by cause with what runs since the last transition: they sum up to the job's age at `now`."""
    found = dict(ledger.seconds)
    if ledger.since is not None and ledger.cause:
        open_for = max(0.0, (now - ledger.since).total_seconds())
        found[ledger.cause] = round(found.get(ledger.cause, 0.0) + open_for, 3)
    return found
