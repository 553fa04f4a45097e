"""Holm's correction of the p-values of a family (S. Holm, Scandinavian Journal of Statistics 6, 1979).

It bounds the probability of at least one wrong rejection, however the hypotheses depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence


def holm(raw: Sequence[float]) -> list[float]:
    """Return the corrected p-values, in the order of `raw`.

    The smallest of m p-values is multiplied by m, the next one by m - 1, and so on. No corrected p-value is
    below that of a smaller one, or above 1.
    """
    adjusted, largest = [0.0] * len(raw), 0.0
    for rank, at in enumerate(sorted(range(len(raw)), key=lambda one: raw[one])):
        largest = max(largest, min(1.0, raw[at] * (len(raw) - rank)))
        adjusted[at] = largest
    return adjusted
