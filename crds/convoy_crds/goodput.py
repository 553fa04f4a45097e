"""The causes of the goodput ledger, and its sums."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from convoy_crds.trainingjob_status import Goodput


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
    """Steps held up by ranks that are lastingly slow: the share of them that guard/ holds to be lost."""
    FINISH = "finish"
    """From the last step to the end of the ranks: evaluation, the last save, the interpreters' own end."""
    SUSPENDED = "suspended"


def totals(ledger: Goodput, now: datetime) -> dict[str, float]:
    """Seconds by cause with what runs since the last transition: they sum up to the job's age at `now`."""
    found = dict(ledger.seconds)
    if ledger.since is not None and ledger.cause:
        for cause, length in split(ledger, max(0.0, (now - ledger.since).total_seconds())).items():
            found[cause] = round(found.get(cause, 0.0) + length, 3)
    return found


def split(ledger: Goodput, length: float) -> dict[str, float]:
    """What so many seconds since the last transition go to, by cause."""
    lost = round(length * ledger.straggler, 3)
    if not lost:
        return {ledger.cause: length}
    return {ledger.cause: length - lost, Cause.STRAGGLER.value: lost}
