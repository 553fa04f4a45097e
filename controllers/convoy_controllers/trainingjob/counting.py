"""Turns the goodput ledgers of jobs into counters. A ledger may move seconds from one cause to another, but
a counter must only grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from convoy_crds.goodput import Cause, totals
from convoy_crds.trainingjob_status import Goodput

_UNSURE = (Cause.PRODUCTIVE, Cause.RECOMPUTE, Cause.FINISH)
"""Causes to which the ledger books time after the last step. If the job turns out to hang, that time moves
to another cause.
"""


def settled(ledger: Goodput, stepped: datetime | None, now: datetime) -> dict[str, float]:
    """Return the seconds by cause, without those that may still move to another cause.

    `stepped` is the time at which the last step ended. If the job has hung since `stepped`, the ledger
    counts that time as training until the hang is detected. The time then moves to the cause DETECT.
    """
    until = min(now, stepped) if stepped is not None else ledger.since
    if ledger.cause == Cause.FINISH:
        # No time under FINISH is settled: the ranks may hang while they end, or may start another loop of
        # steps.
        until = ledger.since
    return totals(ledger, until if ledger.cause in _UNSURE and until is not None else now)


def gains(counted: Mapping[str, float], ledger: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds to add to each cause, so that the counters never exceed the real time.

    A counter that exceeds the ledger keeps its value. The same number of seconds is held back from the
    other causes, in proportion to their gains, until the ledger catches up.
    """
    fresh = {cause: max(0.0, seconds - counted.get(cause, 0.0)) for cause, seconds in ledger.items()}
    whole = sum(fresh.values())
    left = sum(ledger.values()) - sum(counted.values())
    share = min(1.0, max(0.0, left / whole)) if whole > 0 else 0.0
    return {cause: seconds * share for cause, seconds in fresh.items()}
