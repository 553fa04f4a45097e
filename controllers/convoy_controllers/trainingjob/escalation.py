"""Decides which ranks and pods a restart replaces. Each restart that did not help makes the next one
replace more.

The first restart replaces what the policy of the fault asks for. Faults that count form a series while the
job makes no step beyond its furthest one. The second restart of a series replaces the pod at fault, all
further restarts replace all pods.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from convoy_controllers.workers.faults import Fault
from convoy_crds.trainingjob import Recovery
from convoy_crds.trainingjob_status import RestartScope, TrainingJobStatus

QUIET_SECONDS = 600.0
"""Seconds without a fault after which the next fault starts a new series, even if no steps are reported."""

_ORDER = (RestartScope.PROCESS, RestartScope.POD, RestartScope.JOB)


def position_in_row(status: TrainingJobStatus, fault: Fault, step: int | None, now: datetime) -> int:
    """Return the position of the fault, from 1, in a series of faults without progress. A fault that does
    not count leaves the position unchanged.
    """
    last, record = status.restarts.last, status.internal.restarts
    if not fault.counted:
        return record.stalled
    quiet = last is None or now - last.at > timedelta(seconds=QUIET_SECONDS)
    progressed = step is not None and step > record.best
    return 1 if quiet or progressed else record.stalled + 1


def scope(fault: Fault, row: int, recovery: Recovery) -> RestartScope:
    """Return the scope that the restart for this fault replaces. `row` is the position of the fault in its
    series.
    """
    if not recovery.in_place:
        return RestartScope.JOB
    widened = _ORDER[min(row, len(_ORDER)) - 1] if fault.counted and row > 0 else RestartScope.PROCESS
    return max(fault.policy.scope, widened, key=_ORDER.index)


def count_identical(status: TrainingJobStatus, fault: Fault) -> int:
    """Return the number of identical errors in a row, including this fault. In an identical error, the
    program ends in the same way at the same step.

    Return 0 if the program did not cause the fault. Also return 0 before the first step: a service that the
    program needs may not be up yet, so a further restart may succeed. Faults with `Policy.without_steps`
    count even before the first step. A failed init container is one of them, because it makes no steps and
    can itself wait for a service in a loop.
    """
    if not fault.policy.user_error or not (fault.step or fault.policy.without_steps):
        return 0
    last = status.restarts.last
    same = last is not None and (last.reason, last.exit_code, last.step) == (
        fault.reason.name,
        fault.exit_code,
        fault.step,
    )
    return max(status.internal.restarts.identical, 1) + 1 if same else 1
