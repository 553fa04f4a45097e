"""Chooses the save interval. It is the optimum by Young and Daly, limited by a budget for the cost of
saves. Pure.

Sources: Young 1974, "A first order approximation to the optimum checkpoint interval"; Daly 2006, "A higher
order estimate of the optimum checkpoint interval for restart dumps"; for the budget CheckFreq (FAST '21).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BUDGET = 0.035
"""Maximum fraction of the training time that the stalls caused by saves may take. CheckFreq uses 3.5 %."""
MIN_SECONDS, MAX_SECONDS = 1.0, 1800.0
PRIOR_HOURS = 24.0
"""Prior of the failure rate: one failure in 24 hours."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The chosen save interval in seconds, and the reason for it."""

    seconds: float
    reason: str


def failure_rate(failures: int, hours: float) -> float:
    """Return the failures per hour, with a prior of one failure in `PRIOR_HOURS`."""
    return (failures + 1) / (max(0.0, hours) + PRIOR_HOURS)


def young_daly(cost_seconds: float, mtbf_seconds: float) -> float:
    """Return the interval between two saves, in seconds, that minimizes the lost time (Daly's higher order
    estimate).

    `cost_seconds` is the stall caused by one save, `mtbf_seconds` the mean time between failures.
    """
    if cost_seconds >= 2 * mtbf_seconds:
        return mtbf_seconds
    ratio = cost_seconds / (2 * mtbf_seconds)
    first = math.sqrt(2 * cost_seconds * mtbf_seconds)
    return first * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost_seconds


def choose(
    cost_seconds: float, failures_per_hour: float, busy_seconds: float = 0.0, budget: float = BUDGET
) -> Interval:
    """Return the interval for saves that stall the training for `cost_seconds` each.

    A save keeps memory and links busy for `busy_seconds`. The next save must not start before that time has
    passed. `budget` is the maximum fraction of the training time that the stalls may take.
    """
    mtbf = 3600 / failures_per_hour
    best = max(MIN_SECONDS, young_daly(cost_seconds, mtbf))
    why = f"a save stalls for {_span(cost_seconds)}, a failure is expected every {_span(mtbf)}"
    by_budget = cost_seconds / budget
    if best < by_budget:
        best = by_budget
        why = f"a save stalls for {_span(cost_seconds)} and may cost {budget:.1%} of the time"
    if best < busy_seconds:
        best = busy_seconds
        why = f"copying a save takes {_span(busy_seconds)}"
    if best > MAX_SECONDS:
        best = MAX_SECONDS
        why += f"; never more than {_span(MAX_SECONDS)}"
    return Interval(best, why)


def _span(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
