"""The power of the sign-flip test: the differences that it can find with a given number of blocks.

With n differences the smallest possible p-value is 2^(1-n), or 2^-n on one side. Under Holm's correction the
first of m hypotheses needs a p-value of alpha / m. So m hypotheses need at least 1 + log2(m / alpha) blocks.
Where only R random combinations of signs are tried, no p-value is below 2 / (R+1), or 1 / (R+1) on one side.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import optimize, stats

from convoy_workloads.experiments.permutation import EXACT_BLOCKS

_FEW = 32
"""Number of rejected combinations below which the t-test is no good approximation of the sign-flip test."""
_DRAWS, _SEED = 2000, 20_150
_LARGEST = 100.0
"""Largest standardised effect that is searched."""


def floor(blocks: int, one_sided: bool, resamples: int | None = None) -> float:
    """Return the smallest p-value that the test can have with this number of differences.

    `resamples`: number of random combinations of signs if there are more than EXACT_BLOCKS differences; None
    for all combinations.
    """
    sides = 1 if one_sided else 2
    smallest = sides * 2.0**-blocks
    if resamples is not None and blocks > EXACT_BLOCKS:
        smallest = max(smallest, sides / (resamples + 1))
    return min(1.0, smallest)


def blocks_needed(alpha: float, family: int, one_sided: bool) -> int:
    """Return the smallest number of blocks with which the first hypothesis of a family can be decided."""
    return next(n for n in itertools.count(1) if floor(n, one_sided) <= alpha / family)


def resamples_needed(alpha: float, family: int, one_sided: bool) -> int:
    """Return the smallest number of resamples with which the first hypothesis of a family can be decided."""
    return math.ceil((1 if one_sided else 2) * family / alpha - 1)


def minimum_effect(
    differences: Sequence[float], alpha: float, power: float, one_sided: bool, resamples: int | None = None
) -> float | None:
    """Return the smallest true difference that would be found at level `alpha` with the probability `power`,
    if the differences spread like the observed ones. Return None if no difference could be found.
    `resamples`: as for `floor`.
    """
    if len(differences) < 2 or floor(len(differences), one_sided, resamples) > alpha:
        return None
    effect = standardised_minimum_effect(len(differences), alpha, power, one_sided)
    return None if effect is None else effect * statistics.stdev(differences)


@lru_cache(maxsize=256)
def standardised_minimum_effect(blocks: int, alpha: float, power: float, one_sided: bool) -> float | None:
    """Return `minimum_effect` in standard deviations, for normally distributed differences."""
    if floor(blocks, one_sided) > alpha:
        return None
    rejected = math.floor(alpha * 2**blocks / (1 if one_sided else 2) + 1e-9)
    """Number of combinations of signs, on one side, that lead to a rejection."""
    if blocks <= EXACT_BLOCKS and rejected < _FEW:
        return _simulated(blocks, rejected, power)
    return _by_t(blocks, alpha / (1 if one_sided else 2), power)


def _simulated(blocks: int, rejected: int, power: float) -> float:
    """Return the effect at which the observed mean is among the `rejected` largest of all combinations with
    the probability `power`, over simulated differences.
    """
    signs = 1.0 - 2.0 * ((np.arange(2**blocks)[:, None] >> np.arange(blocks)) & 1)
    noise = np.random.default_rng(_SEED).standard_normal((_DRAWS, blocks))

    def found(effect: float) -> float:
        hits = 0
        for part in np.array_split(noise, max(1, _DRAWS * 2**blocks // 4_000_000)):
            sums = (part + effect) @ signs.T
            # The first combination flips no sign.
            hits += int(np.sum(np.sum(sums >= sums[:, :1] - 1e-9, axis=1) <= rejected))
        return hits / _DRAWS

    low, high = 0.0, _LARGEST
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) >= power else (middle, high)
    return high


def _by_t(blocks: int, tail: float, power: float) -> float:
    """Return the effect that Student's t-test finds with the probability `power`. `tail`: level of the one
    side on which the effect lies.
    """
    critical = stats.t.isf(tail, blocks - 1)

    def missed(effect: float) -> float:
        return float(stats.nct.sf(critical, blocks - 1, effect * math.sqrt(blocks)) - power)

    return float(optimize.brentq(missed, 0.0, _LARGEST / math.sqrt(blocks), xtol=1e-6))
