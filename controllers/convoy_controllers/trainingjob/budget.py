"""The restart budget: restarts that count within a sliding window, and the back-off before the next
restart.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from convoy_controllers.trainingjob import escalation
from convoy_controllers.trainingjob.faults import Fault
from convoy_controllers.trainingjob.policy import POLICIES, Policy
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob import Recovery
from convoy_crds.trainingjob_status import LastRestart, Restarts

MAX_PAUSE_SECONDS = 60
"""Longest back-off, in seconds."""
SOON_SECONDS = 10.0
"""A restart within this time after the previous one waits, even if it does not count."""
UNSTARTED_SECONDS = 10.0
"""First back-off, like a kubelet's, if the pod template keeps a pod from starting. It doubles with each such
restart.
"""
ECHO_WINDOW_SECONDS = 2.0
"""Ranks of a lost node may have died this long before the last sign of its agent."""


def exceeded(restarts: Restarts, fault: Fault, recovery: Recovery, now: datetime) -> bool:
    """Return True if one more restart for this fault would exceed `maxRestarts`."""
    if not fault.counted:
        return False
    return len(restarts.within(recovery.window_seconds, now)) + 1 > recovery.max_restarts


def forgive(restarts: Restarts, lost_at: float) -> Restarts:
    """Uncount the latest restart if it was an echo of a node that was lost at `lost_at` (Unix seconds).

    When a node dies, the ranks on other nodes lose their connections seconds before the node can be known
    to be lost. A user's own program cannot tell Convoy that this is why it died.
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
    """Return True if the latest restart counted and may have been an echo of a node lost at `lost_at`."""
    last = restarts.last
    if last is None or not last.counted or last.at.timestamp() < lost_at - ECHO_WINDOW_SECONDS:
        return False
    kind = POLICIES.get(last.reason, Policy())
    return kind.user_error or kind.echo


def after(
    restarts: Restarts, fault: Fault, recovery: Recovery, now: datetime, step: int | None = None
) -> Restarts:
    """Return the record after a restart for this fault is decided. `step` is the furthest step of the job."""
    times = restarts.within(recovery.window_seconds, now) + ([now] if fault.counted else [])
    row = escalation.position_in_row(restarts, fault, step, now)
    return Restarts(
        total=restarts.total + 1,
        counted=restarts.counted + int(fault.counted),
        in_window=len(times),
        times=times[-1024:],
        identical=escalation.count_identical(restarts, fault),
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
    """Return the earliest time for the next incarnation; None for at once.

    The first counted restart of a window has no delay; the next ones have 1, 2, 4 ... 60 s. A restart that
    does not count has no delay, unless it follows another one closely. Then it also has 1, 2, 4 ... 60 s, so
    that no job restarts in a tight loop. A pod that cannot start has longer delays, because whatever its init
    container needs may be unavailable for a while.
    """
    if fault.policy.unstarted:
        pause = min(
            UNSTARTED_SECONDS * 2.0 ** (escalation.count_identical(restarts, fault) - 1), MAX_PAUSE_SECONDS
        )
    elif fault.counted:
        pause = min(2.0 ** (in_window - 2), MAX_PAUSE_SECONDS) if in_window > 1 else 0.0
    elif fault.reason is Reasons.NODE_LOST or restarts.last is None:
        # Detecting the loss of a node has taken some seconds already.
        pause = 0.0
    else:
        before = _last_free_back_off(restarts)
        soon = (now - restarts.last.at).total_seconds() < SOON_SECONDS + before
        pause = min(max(1.0, 2 * before), MAX_PAUSE_SECONDS) if soon else 0.0
    return now + timedelta(seconds=pause) if pause else None


def _last_free_back_off(restarts: Restarts) -> float:
    """Return the back-off before the last restart, in seconds, if that restart did not count; 0 otherwise."""
    if restarts.last is None or restarts.last.counted or restarts.not_before is None:
        return 0.0
    return (restarts.not_before - restarts.last.at).total_seconds()
