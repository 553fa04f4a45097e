"""Evidence that a unit is slow, gathered window by window, with the error controlled over all time.

An e-detector (Shin, Ramdas, Rinaldo 2022, arXiv 2203.03532): per unit Shiryaev-Roberts sums of e-values,
`R <- (1 + R) e`, mixed over shifts of different size. While nobody is slow each e-value has a mean of at
most 1, so the mean of all units' mixtures after t windows is at most t; alarms at `units x run length`
hence lie at least `run length` windows apart, however long the job and whatever is done in between.

The e-values are likelihood ratios of Student's t, made monotone, cut off above (one window alone, however
bad, raises no alarm) and divided by the largest mean that they have under noise that is normal, Laplace or t.
"""

from __future__ import annotations

import numpy as np

from convoy_controllers.guard.telemetry import Floats

SHIFTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""In units of the noise."""
_FREEDOM = 6.0
_WIDTH = 0.35
"""Of the alternative around its shift, as a share of it: what lies between two shifts is covered too."""
MOST = 8.0
"""Logarithm of the largest e-value."""
_LOWEST, _HIGHEST, _STEP = -20.0, 256.0, 0.02
_GRID = np.arange(_LOWEST, _HIGHEST, _STEP)


def _log_t(z: Floats, scale: float) -> Floats:
    return np.asarray(-0.5 * (_FREEDOM + 1) * np.log1p((z / scale) ** 2 / _FREEDOM) - np.log(scale))


def _null_weights() -> list[Floats]:
    """Distributions of healthy noise on the grid, each summing up to 1."""
    densities = (
        np.exp(-0.5 * _GRID**2),
        np.exp(_log_t(_GRID, 1.0)),
        np.exp(-np.abs(_GRID) * np.log(2) * 1.4826),
    )
    return [density / density.sum() for density in densities]


def _table() -> Floats:
    """Logarithm of the e-value by shift and point of the grid."""
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
    """Shifts by units: logarithm of the e-value of a residual `z` above what is allowed, in units of the
    noise.

    NaN, which tells nothing, gives 0.
    """
    # Rounded down, an e-value is no larger than it should be.
    at = np.clip((np.nan_to_num(z) - _LOWEST) / _STEP, 0, len(_GRID) - 1).astype(np.int64)
    values: Floats = _TABLE.take(at, axis=1)
    values[:, np.isnan(z)] = 0.0
    return values


def empty_sums(units: int) -> Floats:
    """The sums before the first window, as logarithms: shifts by units."""
    return np.full((len(SHIFTS), units), -np.inf)


def accumulate(sums: Floats, z: Floats) -> Floats:
    """The sums after one more window; a unit without a residual keeps its own."""
    return np.where(np.isnan(z), sums, np.logaddexp(0.0, sums) + log_e_values(z))


def mixed(sums: Floats) -> Floats:
    """By unit, the logarithm of its evidence."""
    top = np.max(sums, axis=0)
    safe = np.where(np.isfinite(top), top, 0.0)
    return np.asarray(safe + np.log(np.mean(np.exp(sums - safe), axis=0) + 1e-300))
