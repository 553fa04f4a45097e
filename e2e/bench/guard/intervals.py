"""Confidence intervals of means over seeds, and bounds of rates."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""Two-sided 95 % quantiles of Student's t for 1, 2, ... 10 degrees of freedom.

For more than ten, 2.1 is used, which is slightly too wide.
"""


def mean_interval(values: Sequence[float]) -> str:
    """Return the 95 % confidence interval of a mean as text. There is one value per seed."""
    if len(values) < 2:
        return f"n={len(values)}"
    half = _STUDENT[min(len(values) - 2, 9)] if len(values) < 12 else 2.1
    half *= statistics.stdev(values) / math.sqrt(len(values))
    middle = statistics.fmean(values)
    return f"95 % interval {middle - half:.3g} to {middle + half:.3g}, {len(values)} seeds"


def count_with_bound(count: int, all_of: int) -> str:
    """Return as text a count and the upper 95 % bound of its rate per element of `all_of`.

    If the count is 0, the bound is about 3 / `all_of`.
    """
    return f"{count} of {all_of}; at most {poisson_upper_bound(count) / max(1, all_of):.3g} each with 95 %"


def poisson_upper_bound(count: int) -> float:
    """Return the largest Poisson mean for which at most `count` events have a probability of 5 % or more."""
    low, high = float(count), 2.0 * count + 10
    for _ in range(60):
        middle = (low + high) / 2
        term = total = math.exp(-middle)
        for number in range(1, count + 1):
            term *= middle / number
            total += term
        low, high = (middle, high) if total > 0.05 else (low, middle)
    return low
