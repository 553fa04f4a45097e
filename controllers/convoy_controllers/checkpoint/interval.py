"""How often to save: Young and Daly's optimum, held within a budget for the time that saving may cost. Pure.

Young 1974, "A first order approximation to the optimum checkpoint interval"; Daly 2006, "A higher order
estimate of the optimum checkpoint interval for restart dumps"; the budget as in CheckFreq (FAST '21).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BUDGET = 0.035
"""Share of the time that stalls may cost; CheckFreq's 3.5 %."""
LEAST_SECONDS, MOST_SECONDS = 1.0, 1800.0
PRIOR_HOURS = 24.0
"""A job is taken to have been failed once in so long before anything is known of it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """What was chosen and why."""

    seconds: float
    reason: str


def failure_rate(failures: int, hours: float) -> float:
    """Failures per hour, one failure in `PRIOR_HOURS` assumed besides what was seen."""
    return (failures + 1) / (max(0.0, hours) + PRIOR_HOURS)


def young_daly(cost_seconds: float, mtbf_seconds: float) -> float:
    """Seconds between two saves that lose the least time; Daly's higher order estimate.

    `cost_seconds` for which one save stalls the training; `mtbf_seconds` between two failures.
    """
    if cost_seconds >= 2 * mtbf_seconds:
        return mtbf_seconds
    ratio = cost_seconds / (2 * mtbf_seconds)
    first = math.sqrt(2 * cost_seconds * mtbf_seconds)
    return first * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost_seconds


def choose(
    cost_seconds: float, failures_per_hour: float, busy_seconds: float = 0.0, budget: float = BUDGET
) -> Interval:
    """The interval for saves that stall the training for `cost_seconds`.

    `busy_seconds`: for which one save keeps memory and links busy; the next must not come before.
    """
    mtbf = 3600 / failures_per_hour
    best = max(LEAST_SECONDS, young_daly(cost_seconds, mtbf))
    why = f"a save stalls for {_span(cost_seconds)}, a failure is expected every {_span(mtbf)}"
    by_budget = cost_seconds / budget
    if best < by_budget:
        best = by_budget
        why = f"a save stalls for {_span(cost_seconds)} and may cost {budget:.1%} of the time"
    if best < busy_seconds:
        best = busy_seconds
        why = f"copies of a save are made in {_span(busy_seconds)}"
    if best > MOST_SECONDS:
        best = MOST_SECONDS
        why += f"; never more than {_span(MOST_SECONDS)}"
    return Interval(best, why)


def _span(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
