"""Evidence that a unit is slow, accumulated window by window, with the false alarm rate bounded for all
time.

The method is an e-detector (Shin, Ramdas, Rinaldo 2022, arXiv 2203.03532). Each unit has Shiryaev-Roberts
sums of e-values, `R <- (1 + R) e`, mixed over shifts of different size. While no unit is slow, each e-value
has a mean of at most 1. The mean of all units' mixtures after t windows is then at most t. So alarms at
`units x run length` are at least `run length` windows apart on average, however long the job runs.

The e-values are likelihood ratios of Student's t distribution. They are made monotone and cut off above, so
that a single window never raises an alarm. They are divided by their largest mean under normal, Laplace or
t noise.
"""

from __future__ import annotations

import numpy as np

from convoy_controllers.guard.telemetry import Floats

SHIFTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Assumed slowdowns, in units of the noise."""
_FREEDOM = 6.0
_WIDTH = 0.35
"""Width of the alternative around its shift, as a share of the shift. It covers values between two shifts."""
MOST = 8.0
"""Logarithm of the largest e-value."""
_LOWEST, _HIGHEST, _STEP = -20.0, 256.0, 0.02
_GRID = np.arange(_LOWEST, _HIGHEST, _STEP)


def _log_t(z: Floats, scale: float) -> Floats:
    return np.asarray(-0.5 * (_FREEDOM + 1) * np.log1p((z / scale) ** 2 / _FREEDOM) - np.log(scale))


def _null_weights() -> list[Floats]:
    """Return distributions of healthy noise on the grid, each with sum 1."""
    densities = (
        np.exp(-0.5 * _GRID**2),
        np.exp(_log_t(_GRID, 1.0)),
        np.exp(-np.abs(_GRID) * np.log(2) * 1.4826),
    )
    return [density / density.sum() for density in densities]


def _table() -> Floats:
    """Return the logarithm of the e-value by shift and grid point."""
    rows = []
    for shift in SHIFTS:
        ratio = _log_t(_GRID - shift, float(np.hypot(1, _WIDTH * shift))) - _log_t(_GRID, 1.0)
        ratio = np.minimum(ratio, MOST)
        lowest, highest = int(ratio.argmin()), int(ratio.argmax())
        ratio[:lowest] = ratio[lowest]
        ratio[highest:] = ratio[highest]
        ratio = np.maximum.accumulate(ratio)
        means = [float((np.exp(ratio) * weights).sum()) for weights in _null_weights()]
        rows.append(ratio - np.log(max(1.0, *means)))
    return np.stack(rows)


_TABLE = _table()


def log_e_values(z: Floats) -> Floats:
    """Return the logarithms of the e-values, shifts by units.

    `z`: by unit, the residual above the allowed one, in units of the noise. NaN carries no information and
    gives 0.
    """
    # Round down: an e-value must never be too large.
    at = np.clip((np.nan_to_num(z) - _LOWEST) / _STEP, 0, len(_GRID) - 1).astype(np.int64)
    values: Floats = _TABLE.take(at, axis=1)
    values[:, np.isnan(z)] = 0.0
    return values


def empty_sums(units: int) -> Floats:
    """Return the logarithms of the sums before the first window, shifts by units."""
    return np.full((len(SHIFTS), units), -np.inf)


def accumulate(sums: Floats, z: Floats) -> Floats:
    """Return the sums after one more window. A unit without a residual keeps its sums."""
    return np.where(np.isnan(z), sums, np.logaddexp(0.0, sums) + log_e_values(z))


def mixed(sums: Floats) -> Floats:
    """Return by unit the logarithm of its evidence: the mean over the shifts."""
    top = np.max(sums, axis=0)
    safe = np.where(np.isfinite(top), top, 0.0)
    return np.asarray(safe + np.log(np.mean(np.exp(sums - safe), axis=0) + 1e-300))
