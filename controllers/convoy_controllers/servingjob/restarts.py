"""The restart budget of one replica: counted restarts in a sliding window, back-off, and a terminal failure.

The first fault of a series is kept, because it shows the cause, and later faults are often its consequences.
The series ends when the replica is ready again. A replica that used up its budget rests for a whole window
and then gets a new budget.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from convoy_controllers.workers.faults import Fault
from convoy_crds.servingjob_rollout import ServingRecovery
from convoy_crds.servingjob_status import GroupRecord

MAX_PAUSE_SECONDS = 60.0
"""Maximum back-off before a restart, in seconds."""
MAX_ERROR_CHARS = 1024
"""Maximum number of characters of a fault's message in the record."""


def within(record: GroupRecord, recovery: ServingRecovery, now: datetime) -> list[datetime]:
    """Return the times of the counted restarts within the window before `now`."""
    start = now - timedelta(seconds=recovery.window_seconds)
    return [time for time in record.times if time > start]


def after_fault(record: GroupRecord, fault: Fault, recovery: ServingRecovery, now: datetime) -> GroupRecord:
    """Return the record of a replica after a fault: its incarnation has ended, and its next one waits for
    the back-off.

    If one more restart exceeds the budget, or if no restart can heal the fault, the replica has failed.
    """
    recent = within(record, recovery, now)
    used_up = fault.counted and len(recent) + 1 > recovery.max_restarts
    times = [*recent, now] if fault.counted else recent
    pause = min(2.0 ** (len(times) - 2), MAX_PAUSE_SECONDS) if fault.counted and len(times) > 1 else 0.0
    return record.model_copy(
        update={
            "membership": "",
            "times": times[-128:],
            "not_before": now + timedelta(seconds=pause) if pause else None,
            "error": record.error or fault.message[:MAX_ERROR_CHARS],
            "reason": record.reason or fault.reason.name,
            "failed": now if used_up or fault.policy.terminal else None,
        }
    )


def refreshed(record: GroupRecord, *, settled: bool, recovery: ServingRecovery, now: datetime) -> GroupRecord:
    """Return the record without what is over: the error of a replica that is available again, and the
    failure of a replica that has rested for a window.
    """
    if settled and (record.error or record.reason or record.not_before):
        return record.model_copy(update={"error": "", "reason": "", "not_before": None})
    if record.failed and now >= rests_until(record, recovery):
        return record.model_copy(update={"failed": None, "times": [], "not_before": None})
    return record


def rests_until(record: GroupRecord, recovery: ServingRecovery) -> datetime:
    """Return the time at which a failed replica is tried again."""
    if record.failed is None:
        raise ValueError(f"replica {record.role}-{record.number} has not failed")
    return record.failed + timedelta(seconds=recovery.window_seconds)


def pause_seconds(record: GroupRecord, now: datetime) -> float:
    """Return the remaining seconds of back-off."""
    return max(0.0, (record.not_before - now).total_seconds()) if record.not_before else 0.0
