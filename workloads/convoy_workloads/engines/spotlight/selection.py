"""The choice of the samples of one prompt that are trained on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def first(rewards: Sequence[float], size: int) -> list[int]:
    """Return the first `size` positions, whatever the rewards."""
    return list(range(min(size, len(rewards))))


def max_variance(rewards: Sequence[float], size: int) -> list[int]:
    """Return the positions of `size` rewards with the largest variance, in ascending order.

    The largest variance is always that of some lowest rewards together with some highest ones (PODS, Y. Xu et
    al., 2025). Of equal choices the most balanced one wins. With too few rewards, return all positions.
    """
    count = len(rewards)
    if count <= size:
        return list(range(count))
    order = np.argsort(np.asarray(rewards, np.float64), kind="stable")
    ordered = np.asarray(rewards, np.float64)[order]
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    squares = np.concatenate([[0.0], np.cumsum(ordered**2)])
    low = np.arange(size + 1)
    first = count - (size - low)
    """Position of the first of the highest rewards."""
    total = sums[low] + sums[count] - sums[first]
    variance = (squares[low] + squares[count] - squares[first]) / size - (total / size) ** 2
    best = float(variance.max())
    chosen = min(low[variance >= best - 1e-12], key=lambda one: abs(2 * one - size))
    return sorted(int(one) for one in [*order[:chosen], *order[count - size + chosen :]])
