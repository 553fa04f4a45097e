"""Confidence intervals of means and of ratios of means, by the bootstrap.

BCa intervals of few values are too narrow. Their level is therefore raised as if the standard deviation of a
normal distribution had to be estimated ("expanded" intervals: T. Hesterberg, What Teachers Should Know About
the Bootstrap, The American Statistician 69 (2015), section 4.2).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
from scipy import stats

Interval = tuple[float, float]


def expanded_level(level: float, count: int) -> float:
    """Return the level of the bootstrap at which an interval of `count` values covers with the probability
    `level`.
    """
    quantile = stats.t.ppf((1 + level) / 2, count - 1) * math.sqrt(count / (count - 1))
    return float(1 - 2 * stats.norm.sf(quantile))


def mean_interval(values: Sequence[float], level: float, resamples: int, seed: int) -> Interval | None:
    """Return the interval of the mean. Return None for fewer than two values. Equal values give an interval
    of length 0.
    """
    if len(values) < 2:
        return None
    if min(values) == max(values):
        return values[0], values[0]
    return _bootstrap((np.asarray(values),), _mean, (level, resamples, seed))


def ratio_interval(
    first: Sequence[float], second: Sequence[float], level: float, resamples: int, seed: int
) -> Interval | None:
    """Return the interval of the ratio of the means of two paired samples. Return None for fewer than two
    pairs, and if a value is not positive.
    """
    if len(first) < 2 or min(*first, *second) <= 0:
        return None
    ratios = [one / other for one, other in zip(first, second, strict=True)]
    if min(ratios) == max(ratios):
        return ratios[0], ratios[0]
    return _bootstrap((np.asarray(first), np.asarray(second)), _ratio, (level, resamples, seed))


def _bootstrap(samples: tuple[object, ...], statistic: object, options: tuple[float, int, int]) -> Interval:
    """Return the BCa interval, or the percentile interval where BCa is not defined."""
    level, resamples, seed = options
    for method in ("BCa", "percentile"):
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            found = stats.bootstrap(
                samples,
                statistic,
                paired=len(samples) > 1,
                vectorized=True,
                n_resamples=resamples,
                confidence_level=expanded_level(level, len(samples[0])),  # type: ignore[arg-type]
                method=method,
                rng=np.random.default_rng(seed),
            ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            break
    return float(found.low), float(found.high)


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(np.mean(values, axis=axis))


def _ratio(first: np.ndarray, second: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(np.mean(first, axis=axis) / np.mean(second, axis=axis))
