"""The restart budget: counted restarts within a sliding window, and the pause before the next."""

from __future__ import annotations

from datetime import datetime, timedelta

from convoy_controllers.trainingjob.faults import Fault
from convoy_crds.trainingjob import LastRestart, Recovery, Restarts

MAX_PAUSE_SECONDS = 60


def in_window(times: list[datetime], recovery: Recovery, now: datetime) -> list[datetime]:
    """Those of the counted restarts that the window still holds."""
    start = now - timedelta(seconds=recovery.window_seconds)
    return [time for time in times if time > start]


def exceeded(restarts: Restarts, fault: Fault, recovery: Recovery, now: datetime) -> bool:
    """Whether one more restart for this fault would pass `maxRestarts`."""
    if not fault.counted:
        return False
    return len(in_window(restarts.times, recovery, now)) + 1 > recovery.max_restarts


def after(restarts: Restarts, fault: Fault, recovery: Recovery, now: datetime) -> Restarts:
    """The record once a restart for this fault is decided."""
    times = in_window(restarts.times, recovery, now) + ([now] if fault.counted else [])
    return Restarts(
        total=restarts.total + 1,
        counted=restarts.counted + int(fault.counted),
        in_window=len(times),
        times=times[-1024:],
        last=LastRestart(
            reason=fault.reason.name,
            message=fault.message[-4096:],
            rank=fault.rank,
            node=fault.node,
            counted=fault.counted,
            at=now,
        ),
    )


def earliest_formation(restarts: Restarts) -> datetime | None:
    """When the next incarnation may form: at once after one counted restart, then 1, 2, 4 ... 60 s later.

    One second after a restart that does not count: nothing may restart as fast as the machine can.
    """
    if restarts.last is None:
        return None
    if not restarts.last.counted:
        return restarts.last.at + timedelta(seconds=1)
    if restarts.in_window < 2:
        return None
    pause = min(2.0 ** (restarts.in_window - 2), MAX_PAUSE_SECONDS)
    return restarts.last.at + timedelta(seconds=pause)
