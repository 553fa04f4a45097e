"""The sign-flip permutation test of paired differences.

If two arms do not differ, each difference is as likely as its negative. The test compares the observed mean
with the means after all combinations of flipped signs. It needs no normal distribution.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

Side = Literal["two-sided", "greater", "less"]
EXACT_BLOCKS = 14
"""Maximum number of differences for which the test tries all combinations of signs."""
_BATCH_VALUES = 2_000_000
"""Number of values that are held in memory at a time."""


def sign_flip(differences: ArrayLike, side: Side, resamples: int, seed: int) -> Any:
    """Return the p-value of the mean being 0. `side`: `greater` tests for a mean above 0.

    `differences` may have leading dimensions; the result then has one p-value for each series in the last
    dimension. Fewer than two differences give the p-value 1. `resamples`: number of random combinations of
    signs if there are more than EXACT_BLOCKS differences.
    """
    values = np.asarray(differences, dtype=float)
    count = values.shape[-1]
    if count < 2:
        return np.ones(values.shape[:-1])[()]
    return stats.permutation_test(
        (values,),
        _mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf if count <= EXACT_BLOCKS else resamples,
        batch=max(1, _BATCH_VALUES // values.size),
        alternative=side,
        axis=-1,
        rng=np.random.default_rng(seed),
    ).pvalue


def _mean(values: Any, axis: int) -> Any:
    return np.mean(values, axis=axis)
