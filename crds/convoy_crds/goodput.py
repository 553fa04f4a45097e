"""The causes in the goodput ledger, and the total time of each cause."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from convoy_crds.trainingjob_status import Goodput


class Cause(StrEnum):
    """Causes to which the goodput ledger assigns each second of a job's time."""

    PRODUCTIVE = "productive"
    """Training steps that were made for the first time."""
    QUEUE = "queue"
    """Waiting for capacity, or for the user to correct the spec."""
    SCHEDULE = "schedule"
    """Creating and scheduling the pods."""
    START = "start"
    """Starting containers and ranks, up to the end of the first step."""
    DETECT = "detect"
    """Time from a fault until the operator decides to restart."""
    RESTART = "restart"
    """Time from the decision to restart until the first step of the next incarnation has ended."""
    RECOMPUTE = "recompute"
    """Repeating steps whose results a fault has lost."""
    CHECKPOINT = "checkpoint"
    """Delay of steps by saving checkpoints."""
    STRAGGLER = "straggler"
    """Delay of steps by persistent stragglers, as estimated by the straggler detector."""
    FINISH = "finish"
    """Time from the last step until the ranks exit: evaluation, the last save and the shutdown of Python."""
    SUSPENDED = "suspended"


def totals(ledger: Goodput, now: datetime) -> dict[str, float]:
    """Return the seconds of each cause up to `now`. Their sum is the job's age at `now`."""
    found = dict(ledger.seconds)
    if ledger.since is not None and ledger.cause:
        for cause, length in split(ledger, max(0.0, (now - ledger.since).total_seconds())).items():
            found[cause] = round(found.get(cause, 0.0) + length, 3)
    return found


def split(ledger: Goodput, length: float) -> dict[str, float]:
    """Divide the last `length` seconds, all after `ledger.since`, between the ledger's current cause and
    stragglers. Return the seconds by cause.
    """
    lost = round(length * (ledger.straggler or 0.0), 3)
    if not lost:
        return {ledger.cause: length}
    return {ledger.cause: length - lost, Cause.STRAGGLER.value: lost}
