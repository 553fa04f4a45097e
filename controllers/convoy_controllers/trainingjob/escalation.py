"""Decides what a restart replaces: the more restarts do not help, the more the next one replaces.

The first restart replaces what the policy of the fault asks for. Faults that count form a row as long as
the job makes no step beyond its furthest one. The second restart of a row replaces the pod at fault, all
further restarts replace all pods.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from convoy_controllers.trainingjob.faults import Fault
from convoy_crds.trainingjob import Recovery
from convoy_crds.trainingjob_status import LastRestart, Restarts, RestartScope

QUIET_SECONDS = 600.0
"""Seconds without a fault after which the next fault starts a new row, even if no steps are reported."""

_ORDER = (RestartScope.PROCESS, RestartScope.POD, RestartScope.JOB)


def position_in_row(restarts: Restarts, fault: Fault, step: int | None, now: datetime) -> int:
    """Return the position of the fault, from 1, in a row of faults without progress. A fault that does not
    count leaves the position unchanged.
    """
    if not fault.counted:
        return restarts.stalled
    quiet = restarts.last is None or now - restarts.last.at > timedelta(seconds=QUIET_SECONDS)
    progressed = step is not None and step > restarts.best
    return 1 if quiet or progressed else restarts.stalled + 1


def scope(fault: Fault, row: int, recovery: Recovery) -> RestartScope:
    """Return the scope that the restart for this fault replaces. `row` is the fault's position in its row."""
    if not recovery.in_place:
        return RestartScope.JOB
    widened = _ORDER[min(row, len(_ORDER)) - 1] if fault.counted and row > 0 else RestartScope.PROCESS
    return max(fault.policy.scope, widened, key=_ORDER.index)


def count_identical(restarts: Restarts, fault: Fault) -> int:
    """Return the number of identical errors in a row, including this fault. In an identical error, the
    program ends in the same way at the same step.

    Return 0 if the program did not cause the fault. Also return 0 before the first step, because a service
    that is not up yet may become ready. Init containers are the exception: they make no steps, and can wait
    for a service in a loop of their own.
    """
    if not fault.policy.user_error or not (fault.step or fault.policy.without_steps):
        return 0
    last: LastRestart | None = restarts.last
    same = last is not None and (last.reason, last.exit_code, last.step) == (
        fault.reason.name,
        fault.exit_code,
        fault.step,
    )
    return max(restarts.identical, 1) + 1 if same else 1
