"""Effect sizes without a unit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def standardised(differences: Sequence[float]) -> float | None:
    """Return the mean difference divided by the standard deviation of the differences (d_z). Return None for
    fewer than two differences, and if all are equal.
    """
    if len(differences) < 2 or (spread := statistics.stdev(differences)) == 0:
        return None
    return math.fsum(differences) / len(differences) / spread


def cliffs_delta(first: Sequence[float], second: Sequence[float], factor: float) -> float | None:
    """Return Cliff's delta: how much more often a value of the first arm is better than one of the second
    than worse, over all pairs of values. It lies between -1 and 1. `factor`: 1 if higher is better, else -1.
    """
    if not first:
        return None
    wins = sum((one > other) - (one < other) for one in first for other in second)
    return factor * wins / (len(first) * len(second))
