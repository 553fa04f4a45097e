"""How much a restart replaces: more each time when nothing gets better.

The first restart of a kind replaces what its policy says. While faults that count follow one another without
a step beyond the furthest so far, the second replaces the pod at fault, the third all pods, and from then on
the nodes at fault are avoided once they repeat (`recovery.avoidRepeatOffenders`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from convoy_controllers.trainingjob.faults import Fault
from convoy_crds.trainingjob import Recovery
from convoy_crds.trainingjob_status import LastRestart, Restarts, RestartScope

QUIET_SECONDS = 600.0
"""A fault so long after the one before is the first of its row, also where no steps are seen."""

_ORDER = (RestartScope.PROCESS, RestartScope.POD, RestartScope.JOB)


def stalled(restarts: Restarts, fault: Fault, step: int | None, now: datetime) -> int:
    """The place of a fault in its row of fruitless restarts, from 1; unchanged by one that does not count."""
    if not fault.counted:
        return restarts.stalled
    quiet = restarts.last is None or now - restarts.last.at > timedelta(seconds=QUIET_SECONDS)
    progressed = step is not None and step > restarts.best
    return 1 if quiet or progressed else restarts.stalled + 1


def scope(fault: Fault, row: int, recovery: Recovery) -> RestartScope:
    """What the restart for this fault replaces."""
    if not recovery.in_place:
        return RestartScope.JOB
    widened = _ORDER[min(row, len(_ORDER)) - 1] if fault.counted and row > 0 else RestartScope.PROCESS
    return max(fault.policy.scope, widened, key=_ORDER.index)


def identical(restarts: Restarts, fault: Fault) -> int:
    """How often in a row, this fault included, the program has ended in this way at this step.

    0 for what is not the program's doing, and before the first step: a service that is not up yet heals.
    An init container has no steps, and a loop of its own where it waits for something.
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
