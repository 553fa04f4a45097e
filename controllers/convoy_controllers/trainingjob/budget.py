"""The restart budget: counted restarts within a sliding window, and the pause before the next."""

from __future__ import annotations

from datetime import datetime, timedelta

from convoy_controllers.trainingjob import escalation
from convoy_controllers.trainingjob.faults import Fault
from convoy_controllers.trainingjob.policy import POLICIES, Policy
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob import Recovery
from convoy_crds.trainingjob_status import LastRestart, Restarts

MAX_PAUSE_SECONDS = 60
SOON_SECONDS = 10.0
"""A restart so soon after the one before it waits, also when it does not count."""
UNSTARTED_SECONDS = 10.0
"""Pause after a pod that its template keeps from starting, as of a kubelet; each such restart doubles it."""
ECHO_WINDOW_SECONDS = 2.0
"""How long before the last sign of a node's agent its ranks may already have been gone."""


def exceeded(restarts: Restarts, fault: Fault, recovery: Recovery, now: datetime) -> bool:
    """Whether one more restart for this fault would pass `maxRestarts`."""
    if not fault.counted:
        return False
    return len(restarts.within(recovery.window_seconds, now)) + 1 > recovery.max_restarts


def forgive(restarts: Restarts, lost_at: float) -> Restarts:
    """Takes back the latest restart where it was the echo of a node's loss at `lost_at` (Unix seconds).

    The other ranks of the job die of a lost connection seconds before the node can be known to be lost, and
    a program of the user's own cannot say that this is why it died.
    """
    if not forgivable(restarts, lost_at):
        return restarts
    return restarts.model_copy(
        update={
            "counted": restarts.counted - 1,
            "in_window": max(0, restarts.in_window - 1),
            "times": restarts.times[:-1],
            "identical": max(0, restarts.identical - 1),
            "stalled": max(0, restarts.stalled - 1),
            "not_before": None,
        }
    )


def forgivable(restarts: Restarts, lost_at: float) -> bool:
    """Whether the latest restart counted and may have been the echo of a node's loss at `lost_at`."""
    last = restarts.last
    if last is None or not last.counted or last.at.timestamp() < lost_at - ECHO_WINDOW_SECONDS:
        return False
    kind = POLICIES.get(last.reason, Policy())
    return kind.user_error or kind.echo


def after(
    restarts: Restarts, fault: Fault, recovery: Recovery, now: datetime, step: int | None = None
) -> Restarts:
    """The record once a restart for this fault is decided; `step`: the furthest the job has come."""
    times = restarts.within(recovery.window_seconds, now) + ([now] if fault.counted else [])
    row = escalation.stalled(restarts, fault, step, now)
    return Restarts(
        total=restarts.total + 1,
        counted=restarts.counted + int(fault.counted),
        in_window=len(times),
        times=times[-1024:],
        identical=escalation.identical(restarts, fault),
        stalled=row,
        best=max(restarts.best, step or 0),
        not_before=_not_before(restarts, fault, len(times), now),
        last=LastRestart(
            reason=fault.reason.name,
            message=fault.message[:4096],
            rank=fault.rank,
            node=fault.node,
            pod=fault.pod,
            exit_code=fault.exit_code,
            step=fault.step,
            counted=fault.counted,
            scope=escalation.scope(fault, row, recovery),
            at=now,
        ),
    )


def _not_before(restarts: Restarts, fault: Fault, in_window: int, now: datetime) -> datetime | None:
    """When the next incarnation may form: at once after one counted restart, then 1, 2, 4 ... 60 s later.

    After one that does not count at once, but 1, 2, 4 ... 60 s later where such restarts follow one another:
    nothing may restart as fast as the machine can. What an init container needs may be away for a while.
    """
    if fault.policy.unstarted:
        pause = min(UNSTARTED_SECONDS * 2.0 ** (escalation.identical(restarts, fault) - 1), MAX_PAUSE_SECONDS)
    elif fault.counted:
        pause = min(2.0 ** (in_window - 2), MAX_PAUSE_SECONDS) if in_window > 1 else 0.0
    elif fault.reason is Reasons.NODE_LOST or restarts.last is None:
        # A node's loss has taken its seconds to be known.
        pause = 0.0
    else:
        before = _pause(restarts)
        soon = (now - restarts.last.at).total_seconds() < SOON_SECONDS + before
        pause = min(max(1.0, 2 * before), MAX_PAUSE_SECONDS) if soon else 0.0
    return now + timedelta(seconds=pause) if pause else None


def _pause(restarts: Restarts) -> float:
    """Seconds for which the last restart was put off, where it did not count."""
    if restarts.last is None or restarts.last.counted or restarts.not_before is None:
        return 0.0
    return (restarts.not_before - restarts.last.at).total_seconds()
