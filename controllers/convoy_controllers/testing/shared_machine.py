"""Step times of ranks that share a small machine with each other and with other programs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from convoy_controllers.guard.telemetry import Floats, Table

_RHO, _SIGMA, _FREEDOM = 0.7, 0.08, 3.0
"""Autocorrelation, size and degrees of freedom of the noise. Few degrees of freedom give large outliers."""
_BURST_SHARE, _BURST_WINDOWS, _BURST = 1 / 50, 6.0, 0.4
"""Probability that a burst starts in a window, mean number of its windows, and its mean extra time."""
_WARM_UP = (1.2, 0.5, 0.2)
"""Logarithm of the extra time in the first windows of an incarnation."""


def disturbances(ranks: int, windows: int, seed: int) -> Floats:
    """Return the logarithm of the factor on each rank's time, by window and rank: autocorrelated noise with
    outliers, bursts that hit one rank for several windows, and a slow start.
    """
    rng = np.random.default_rng(seed)
    found = np.zeros((windows, ranks))
    noise, left, size = np.zeros(ranks), np.zeros(ranks), np.zeros(ranks)
    for window in range(windows):
        fresh = rng.standard_t(_FREEDOM, ranks) * _SIGMA * np.sqrt(1 - _RHO**2)
        noise = _RHO * noise + fresh
        starts = (left <= 0) & (rng.random(ranks) < _BURST_SHARE)
        left = np.where(starts, rng.geometric(1 / _BURST_WINDOWS, ranks), left - 1)
        size = np.where(starts, rng.exponential(_BURST, ranks), size)
        found[window] = noise + np.where(left > 0, size, 0.0)
    found[: len(_WARM_UP)] += np.array(_WARM_UP)[:windows, None] * rng.uniform(0.5, 1.5, ranks)
    return found


def tables(disturbance: Floats, longer: Floats) -> Iterator[Table]:
    """Yield one table per window of a synchronous job. `disturbance`: see `disturbances`; `longer`: factor on
    the usual second of compute, by rank.
    """
    size = disturbance.shape[1]
    for number, row in enumerate(disturbance, start=1):
        compute, zero = longer * np.exp(row), np.zeros(size)
        wall = np.full(size, 1.02 * compute.max())
        yield Table(
            first=number,
            last=number,
            wall=wall,
            compute=compute,
            optimizer=0.01 * compute,
            data=zero,
            wait=wall - 1.01 * compute,
            save=zero,
            host=zero,
            tokens=np.full(size, np.nan),
            clock=np.ones(size),
            throttled=np.zeros(size, dtype=np.bool_),
        )
