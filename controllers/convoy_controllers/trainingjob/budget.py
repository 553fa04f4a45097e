"""The restart budget: restarts that count within a sliding window, and the back-off before the next
restart.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from convoy_controllers.trainingjob import escalation
from convoy_controllers.workers.faults import Fault
from convoy_controllers.workers.policy import POLICIES, Policy
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob import Recovery
from convoy_crds.trainingjob_status import LastRestart, RestartRecord, Restarts, TrainingJobStatus

MAX_PAUSE_SECONDS = 60
"""Maximum back-off before a restart, in seconds."""
SOON_SECONDS = 10.0
"""Seconds after a restart within which the next restart gets a back-off, even if the next restart does not
count against `recovery.maxRestarts`.
"""
UNSTARTED_SECONDS = 10.0
"""First back-off, in seconds, after a pod could not start because of its template. Kubelets use the same
value. The back-off doubles with each further fault of this kind.
"""
ECHO_WINDOW_SECONDS = 2.0
"""Maximum number of seconds for which a node's agent may still send heartbeats after the ranks on the node
have died.
"""


def exceeded(status: TrainingJobStatus, fault: Fault, recovery: Recovery, now: datetime) -> bool:
    """Return True if one more restart for this fault would exceed `maxRestarts`."""
    if not fault.counted:
        return False
    return len(status.internal.restarts.within(recovery.window_seconds, now)) + 1 > recovery.max_restarts


def forgive(status: TrainingJobStatus, lost_at: float) -> None:
    """Let the latest restart no longer count if it may have been an echo of a lost node. `lost_at` is the
    time at which the node's agent last sent something (Unix seconds).

    When a node dies, ranks on other nodes lose their connections and fail at once. Convoy learns only
    seconds later that the node is lost. Until then, the failures look like errors of the user's program, so
    the restart counts at first.
    """
    record = status.internal.restarts
    if forgivable(status.restarts, lost_at):
        status.restarts.counted -= 1
        record.times = record.times[:-1]
        record.identical = max(0, record.identical - 1)
        record.stalled = max(0, record.stalled - 1)
        record.not_before = None


def forgivable(restarts: Restarts, lost_at: float) -> bool:
    """Return True if the latest restart counted and may have been an echo of the loss of a node at
    `lost_at`.
    """
    last = restarts.last
    if last is None or not last.counted or last.at.timestamp() < lost_at - ECHO_WINDOW_SECONDS:
        return False
    kind = POLICIES.get(last.reason, Policy())
    return kind.user_error or kind.echo


def record_restart(
    status: TrainingJobStatus, fault: Fault, recovery: Recovery, now: datetime, step: int | None = None
) -> None:
    """Record in the status that the job restarts because of this fault. `step` is the furthest step that
    the job has reached.
    """
    restarts, record = status.restarts, status.internal.restarts
    times = record.within(recovery.window_seconds, now) + ([now] if fault.counted else [])
    row = escalation.position_in_row(status, fault, step, now)
    status.internal.restarts = RestartRecord(
        times=times[-1024:],
        identical=escalation.count_identical(status, fault),
        stalled=row,
        best=max(record.best, step or 0),
        not_before=_not_before(status, fault, len(times), now),
    )
    status.restarts = Restarts(
        total=restarts.total + 1,
        counted=restarts.counted + int(fault.counted),
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


def _not_before(status: TrainingJobStatus, fault: Fault, in_window: int, now: datetime) -> datetime | None:
    """Return the earliest time for the next incarnation; None if it may form at once.

    The first counted restart of a window has no back-off; the next ones have 1, 2, 4 ... 60 s. A restart
    that does not count has a back-off only if it comes soon after another restart. It then also has 1, 2, 4
    ... 60 s, so that no job restarts in a tight loop. If a pod cannot start, the back-off is longer,
    because a service that the pod's init container needs may be unavailable for a while.
    """
    if fault.policy.unstarted:
        pause = min(
            UNSTARTED_SECONDS * 2.0 ** (escalation.count_identical(status, fault) - 1), MAX_PAUSE_SECONDS
        )
    elif fault.counted:
        pause = min(2.0 ** (in_window - 2), MAX_PAUSE_SECONDS) if in_window > 1 else 0.0
    elif fault.reason is Reasons.NODE_LOST or status.restarts.last is None:
        # The loss of a node takes some seconds to detect, so no back-off is needed.
        pause = 0.0
    else:
        before = _last_free_back_off(status)
        soon = (now - status.restarts.last.at).total_seconds() < SOON_SECONDS + before
        pause = min(max(1.0, 2 * before), MAX_PAUSE_SECONDS) if soon else 0.0
    return now + timedelta(seconds=pause) if pause else None


def _last_free_back_off(status: TrainingJobStatus) -> float:
    """Return the back-off in seconds before the last restart, if that restart did not count; 0 otherwise."""
    last, not_before = status.restarts.last, status.internal.restarts.not_before
    if last is None or last.counted or not_before is None:
        return 0.0
    return (not_before - last.at).total_seconds()
