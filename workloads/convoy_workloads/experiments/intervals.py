"""Confidence intervals of mean differences and of ratios of means.

The interval of a mean consists of all values that the sign-flip test does not reject. Its ends are means of
subsets of the differences: between two neighbours of the 2^n - 1 ordered means, the truth lies with the
probability 2^-n (J. A. Hartigan, Using Subsample Values as Typical Values, JASA 64, 1969). So the interval is
exact if the differences are symmetric about their mean.

The interval of a ratio is a BCa bootstrap interval. With few values such an interval is too narrow. Its level
is therefore raised as if the standard deviation of a normal distribution had to be estimated (T. Hesterberg,
What Teachers Should Know About the Bootstrap, The American Statistician 69, 2015).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
from scipy import stats

from convoy_workloads.experiments.permutation import EXACT_BLOCKS

Interval = tuple[float, float]


def mean_interval(values: Sequence[float], level: float, resamples: int, seed: int) -> Interval | None:
    """Return the interval of the mean; None for fewer than two values.

    `level`: the smallest level of the interval, if the number of values allows it; see `attained_level`.
    `resamples`: number of random subsets if there are more than EXACT_BLOCKS values.
    """
    if len(values) < 2:
        return None
    if min(values) == max(values):
        return values[0], values[0]
    exact = len(values) <= EXACT_BLOCKS
    means = np.sort(_subset_means(values) if exact else _random_means(values, resamples, seed))
    rank = _rank(len(means) + 1, level)
    return float(means[rank - 1]), float(means[-rank])


def attained_level(count: int, level: float) -> float:
    """Return the level that the interval of the mean of `count` values has. It is at least `level`, unless
    there are so few values that even the widest interval has a lower level.
    """
    if count > EXACT_BLOCKS:
        return level
    means = 1 << count
    return max(0.0, 1 - 2 * _rank(means, level) / means)


def ratio_interval(
    first: Sequence[float], second: Sequence[float], level: float, resamples: int, seed: int
) -> Interval | None:
    """Return the confidence interval of the ratio between the means of two paired samples. Return None for
    fewer than two pairs, and if a value is not positive.
    """
    if len(first) < 2 or min(*first, *second) <= 0:
        return None
    ratios = [one / other for one, other in zip(first, second, strict=True)]
    if min(ratios) == max(ratios):
        return ratios[0], ratios[0]
    return bootstrapped_ratio(first, second, level, resamples, seed)


def bootstrapped_ratio(
    first: Sequence[float], second: Sequence[float], level: float, resamples: int, seed: int
) -> Interval | None:
    """Return the BCa bootstrap interval of the ratio between the means of two paired samples, which have at
    least two values each. Return None if no interval can be computed. The caller must know that the mean of
    `second` is above 0.
    """
    for method in ("BCa", "percentile"):  # BCa is not defined for all samples.
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            found = stats.bootstrap(
                (np.asarray(first), np.asarray(second)),
                _ratio,
                paired=True,
                vectorized=True,
                n_resamples=resamples,
                confidence_level=expanded_level(level, len(first)),
                method=method,
                rng=np.random.default_rng(seed),
            ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            return float(found.low), float(found.high)
    return None


def expanded_level(level: float, count: int) -> float:
    """Return the level of the bootstrap at which an interval of `count` values covers with the probability
    `level`.
    """
    quantile = stats.t.ppf((1 + level) / 2, count - 1) * math.sqrt(count / (count - 1))
    return float(1 - 2 * stats.norm.sf(quantile))


def _rank(means: int, level: float) -> int:
    """Return the rank of the interval's ends among the ordered means, from 1."""
    return max(1, math.floor((1 - level) / 2 * means + 1e-9))


def _subset_means(values: Sequence[float]) -> np.ndarray:
    """Return the means of all subsets but the empty one."""
    sums, sizes = np.zeros(1), np.zeros(1)
    for one in values:
        sums, sizes = np.concatenate([sums, sums + one]), np.concatenate([sizes, sizes + 1])
    return np.asarray(sums[1:] / sizes[1:])


def _random_means(values: Sequence[float], count: int, seed: int) -> np.ndarray:
    """Return the means of random subsets. Each value is in a subset with the probability 1/2."""
    chosen = np.random.default_rng(seed).random((count, len(values))) < 0.5
    chosen = chosen[chosen.any(axis=1)]
    return np.asarray(np.where(chosen, values, 0.0).sum(axis=1) / chosen.sum(axis=1))


def _ratio(first: np.ndarray, second: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(np.mean(first, axis=axis) / np.mean(second, axis=axis))
