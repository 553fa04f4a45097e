"""Evidence that a unit is slow, accumulated window by window. The false alarm rate is bounded, however long
the job runs.

The method is an e-detector (Shin, Ramdas, Rinaldo 2022, arXiv 2203.03532). Each unit has one
Shiryaev-Roberts sum of e-values, `R <- (1 + R) e`, for each assumed slowdown. The unit's evidence is the
mean of its sums. While no unit is slow, each e-value has a mean of at most 1. After t windows, the mean
evidence of all units is then at most t. So alarms at an evidence of `units x run length` are on average at
least `run length` windows apart.

The e-values are likelihood ratios of Student's t distribution. They are made monotone and have an upper
limit, so that a single window never raises an alarm. They are divided by their largest mean under normal,
Laplace or t noise, so that the mean stays at most 1.
"""

from __future__ import annotations

import numpy as np

from convoy_controllers.guard.robust import clipped
from convoy_controllers.guard.telemetry import Floats

SHIFTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Assumed slowdowns, in units of the noise."""
_FREEDOM = 6.0
_WIDTH = 0.35
"""Width of the distribution around an assumed slowdown, as a share of the slowdown. The width covers values
between two entries of SHIFTS.
"""
MOST = 8.0
"""Logarithm of the largest e-value that one window can give."""
_LOWEST, _HIGHEST, _STEP = -20.0, 256.0, 0.02
_GRID = np.arange(_LOWEST, _HIGHEST, _STEP)


def _log_t(z: Floats, scale: float) -> Floats:
    return np.asarray(-0.5 * (_FREEDOM + 1) * np.log1p((z / scale) ** 2 / _FREEDOM) - np.log(scale))


def _null_weights() -> list[Floats]:
    """Return three distributions of healthy noise over the grid of z values: normal, t and Laplace. Each
    has sum 1.
    """
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
    """Return the logarithms of the e-values: one row per shift, one column per unit.

    `z`: by unit, the excess of the residual over the allowed residual, in units of the noise. NaN adds no
    evidence, so it gives 0.
    """
    # Round down, because an e-value must never be too large.
    unknown = np.isnan(z)
    at = clipped((np.where(unknown, 0.0, z) - _LOWEST) / _STEP, 0, len(_GRID) - 1).astype(np.int64)
    values: Floats = _TABLE.take(at, axis=1)
    values[:, unknown] = 0.0
    return values


def empty_sums(units: int) -> Floats:
    """Return the logarithms of the sums before the first window: one row per shift, one column per unit."""
    return np.full((len(SHIFTS), units), -np.inf)


def accumulate(sums: Floats, z: Floats) -> Floats:
    """Return the sums after one more window. A unit without a residual keeps its sums."""
    return np.where(np.isnan(z), sums, np.logaddexp(0.0, sums) + log_e_values(z))


def mixed(sums: Floats) -> Floats:
    """Return by unit the logarithm of its evidence, which is the mean of its sums over the shifts."""
    top = np.max(sums, axis=0)
    safe = np.where(np.isfinite(top), top, 0.0)
    return np.asarray(safe + np.log(np.exp(sums - safe).sum(axis=0) / len(sums) + 1e-300))
