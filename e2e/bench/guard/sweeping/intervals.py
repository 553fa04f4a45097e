"""Fractions with 95 % confidence intervals, for counts that come in clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_Z = 1.96


@dataclass(frozen=True)
class Share:
    """A fraction and its confidence interval. `value` is None if nothing was counted."""

    value: float | None
    low: float = 0.0
    high: float = 1.0


def share(counts: Sequence[tuple[int, int]]) -> Share:
    """Return the fraction of hits over all clusters. A cluster is the results of one seed. `counts` has
    (hits, total) of each cluster.

    The interval is Wilson's. If the design effect of the clusters is above 1, the total is divided by it.
    """
    hits, total = sum(one for one, _ in counts), sum(one for _, one in counts)
    if not total:
        return Share(None)
    value = hits / total
    plain = value * (1 - value) / total
    groups = len(counts)
    between = math.fsum((one - value * many) ** 2 for one, many in counts) / total**2
    between *= groups / (groups - 1) if groups > 1 else 1.0
    count = total / max(1.0, between / plain) if plain else float(total)
    middle = (value + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    half = _Z / (1 + _Z**2 / count) * math.sqrt(value * (1 - value) / count + _Z**2 / (4 * count**2))
    return Share(value, max(0.0, middle - half), min(1.0, middle + half))
