"""Lasting imbalance of jobs in which few ranks do the same work.

In each window some replica is the longest. Among many replicas, the cost of the longest one tells how uneven
their work is. Among two or three, noise alone makes one of them costly in nearly every window: the cost of
the longest is never negative, so its mean does not fall to zero. So the work counts as uneven only if the
same replica or stage is the longest over many windows, by more than these windows vary.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np

from convoy_controllers.guard.loss import Shape, Shares, mended, shares
from convoy_controllers.guard.robust import Sorted, group_medians, spread, zeroed
from convoy_controllers.guard.telemetry import Bools, Floats, Ints

_WINDOWS = 128
_FEWEST_WINDOWS = 8
_FEWEST_OF_RANKS = 64
"""Number of windows for the replicas of a job in which each replica is a single rank. Nothing else tells
then that the rank has more work, and is not disturbed for a while.
"""
_RHO = 0.8
"""Assumed autocorrelation of the windows' differences. On a shared machine a disturbance lasts for several
windows.
"""
_SIGMAS = 6.0
"""Least ratio of a difference to its standard error."""
_BLOCKS, _FEWEST_IN_BLOCKS = 8, 32
"""Number of blocks into which the windows are divided for a second test, and the number of windows from which
this test is made. Its standard error comes from the blocks, so it includes bursts of several windows.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Unevenness:
    """Differences between the replicas and between the stages of a job in its recent windows."""

    replicas: Floats
    """Logarithm of the time of each replica relative to the other replicas, by window and replica."""
    stages: Floats
    """Logarithm of the time of each stage, by window and stage."""
    times: Floats
    """Mean logarithm of the seconds, by stage within replica; NaN if the replica lacks the stage."""

    @classmethod
    def initial(cls, shape: Shape) -> Unevenness:
        """Return the state before the first window."""
        cells = shape.replicas * shape.stages
        return cls(np.empty((0, shape.replicas)), np.empty((0, shape.stages)), np.full(cells, np.nan))

    def updated(self, busy: Floats, slow: Bools, groups: Ints, shape: Shape) -> Unevenness:
        """Return the state after one more window. `busy`: seconds by rank; `slow`: mask of the ranks with an
        alarm, which count as long as their peers; `groups`: peer group by rank.
        """
        cells = np.full(shape.replicas * shape.stages, np.nan)
        np.fmax.at(cells, shape.cell, np.log(mended(busy, slow, groups)))
        replica, stage = np.divmod(np.arange(len(cells)), shape.stages)
        stages = group_medians(cells, stage)
        replicas = Sorted(cells - stages[stage], replica).low_medians()
        before = np.where(np.isnan(self.times), cells, self.times)
        pace = 1 / min(len(self.replicas) + 1, _WINDOWS)
        return replace(
            self,
            replicas=np.vstack([self.replicas, replicas])[-_WINDOWS:],
            stages=np.vstack([self.stages, stages])[-_WINDOWS:],
            times=before + pace * zeroed(cells - before),
        )

    def cost(self, groups: Ints, shape: Shape, micro: int) -> Shares:
        """Return the shares of the step that even work would save. A share is 0 unless the imbalance lasts.
        `micro`: number of micro-batches in a step.
        """
        compute = np.exp(self.times)[shape.cell]
        single = len(shape.cell) == shape.replicas
        fewest = _FEWEST_OF_RANKS if single else _FEWEST_WINDOWS
        found = shares(compute, np.zeros(len(compute), dtype=np.bool_), groups, shape, micro)
        return replace(
            found,
            stages=found.stages if _lasting(self.stages, _FEWEST_WINDOWS) else 0.0,
            replicas=found.replicas if _lasting(self.replicas, fewest) else 0.0,
        )


def _lasting(history: Floats, fewest: int) -> bool:
    """Return True if the longest unit is longer than the others by more than the history varies.

    `history`: logarithm of the time by window and unit, NaN if unknown; `fewest`: minimum number of windows.
    """
    if len(history) < fewest:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        means = np.nanmean(history, axis=0)
        if np.isnan(means).all():
            return False
        longest = int(np.nanargmax(means))
        gaps = history[:, longest] - np.nanmean(np.delete(history, longest, axis=1), axis=1)
    gaps = gaps[~np.isnan(gaps)]
    count = len(gaps)
    if count < fewest:
        return False
    error = spread(np.diff(gaps)) / np.sqrt(2 * (1 - _RHO))
    error *= np.sqrt((1 + _RHO) / (1 - _RHO) / count)
    if count >= _FEWEST_IN_BLOCKS:
        error = max(error, _error_of_blocks(gaps))
    return bool(gaps.mean() > _SIGMAS * error)


def _error_of_blocks(gaps: Floats) -> float:
    """Return the standard error of the mean, from the means of successive blocks."""
    means = gaps[len(gaps) % _BLOCKS :].reshape(_BLOCKS, -1).mean(axis=1)
    rest = means - means.mean()
    # Blocks of a long burst resemble their neighbours, so count fewer independent blocks.
    alike = float(np.clip((rest[1:] * rest[:-1]).sum() / max((rest**2).sum(), 1e-18), 0.0, _RHO))
    return float(means.std(ddof=1) * np.sqrt((1 + alike) / (1 - alike) / _BLOCKS))
