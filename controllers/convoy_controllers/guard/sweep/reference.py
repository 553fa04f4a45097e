"""Values that healthy nodes of one hardware class reach in one metric. The values are frozen and monitored
for drift.

The reference distribution is that of the medoid: the node whose samples are nearest to the samples of all
other nodes, as in SuperBench (ATC '24, "Proactive validation"). The reference is frozen under a version, so
that a slow decay of the whole fleet does not lower the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from convoy_controllers.guard.sweep.measuring import Better
from convoy_controllers.guard.sweep.scores import robust_sigma

Row = NDArray[np.float64]

LEVELS = 33
"""Number of quantiles that represent a node's samples."""
ALARM = 0.02
"""Share by which the medoid's median may drift before an alarm is raised."""
_LEARNED = 0.95
"""Quantile of the members' distances from the medoid that becomes the limit of healthy nodes."""
_LEAST_SPREAD = 0.003
"""Minimum assumed spread of medians and of samples, as a share: no metric is steadier."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The range of one metric on healthy nodes of one hardware class (accelerator, driver, firmware, power
    cap), learned from the results of its member nodes. The order of the members has no effect.
    """

    metric: str
    hardware: str
    better: Better
    version: int
    members: tuple[tuple[str, tuple[float, ...]], ...]
    """Hardware name of each member, and quantiles of its samples in rising order."""


@dataclass(frozen=True, slots=True)
class Healthy:
    """Figures of the reference, with which a node is compared."""

    count: int
    """Number of members, without the node itself."""
    quantiles: Row
    """Quantiles of the samples of the medoid. The medoid is the member whose samples are nearest to those
    of all other members.
    """
    middle: float
    """Median of the members' medians."""
    spread: float
    """Robust standard deviation of the members' medians."""
    distance: float
    """Largest distance from the medoid at which a node still counts as healthy."""
    variation: float
    """Median of the members' coefficients of variation."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Drift of the medoid of recent samples from the frozen medoid."""

    change: float
    """Change of the medoid's median, as a share of the frozen median. Negative means slower, for any
    direction of the metric.
    """
    alarm: bool


def freeze(
    metric: str, hardware: str, better: Better, version: int, samples: Mapping[str, Sequence[float]]
) -> Reference:
    """Return a reference made of these nodes' samples. A node with an invalid sample is left out."""
    rows = {node: quantiles(row) for node, row in samples.items()}
    members = tuple(
        (node, tuple(float(value) for value in row)) for node, row in sorted(rows.items()) if row is not None
    )
    return Reference(metric, hardware, better, version, members)


def quantiles(samples: Sequence[float]) -> Row | None:
    """Return the samples' quantiles on a fixed grid of levels. Return None if there are no samples, or if
    one is not a positive number.
    """
    row = np.asarray(samples, float)
    if not row.size or not np.isfinite(row).all() or (row <= 0).any():
        return None
    return np.asarray(np.quantile(row, (np.arange(LEVELS) + 0.5) / LEVELS), float)


def healthy(reference: Reference, without: str = "") -> Healthy | None:
    """Return the figures of all members except `without`; None if no member is left."""
    # All nodes that are no members get the same result, so let them use one cache entry.
    member = any(node == without for node, _ in reference.members)
    return _healthy(reference, without if member else "")


@lru_cache(maxsize=256)
def _healthy(reference: Reference, without: str) -> Healthy | None:
    rows = np.array([row for node, row in reference.members if node != without], float)
    if not len(rows):
        return None
    between = np.abs(rows[:, None, :] - rows[None, :, :]).mean(axis=2)
    medoid = rows[int(between.sum(axis=1).argmin())]
    medians = rows[:, LEVELS // 2]
    middle = float(np.median(medians))
    away = np.array([distance(row, medoid, reference.better) for row in rows])
    variation = float(np.median(rows.std(axis=1) / rows.mean(axis=1)))
    return Healthy(
        len(rows),
        medoid,
        middle,
        robust_sigma(medians, _LEAST_SPREAD * middle),
        float(np.quantile(away, _LEARNED)),
        max(_LEAST_SPREAD, variation),
    )


def distance(row: Row, medoid: Row, better: Better) -> float:
    """Return the area by which the samples are worse than the medoid's, relative to the medoid's median.

    The area is the integral of max(0, F(t) - F0(t)) over the values t. F and F0 are the distribution
    functions of the samples and of the medoid's samples. The code integrates over the levels instead, which
    gives the same area.
    """
    worse = medoid - row if better is Better.HIGHER else row - medoid
    return float(np.maximum(worse, 0).mean() / medoid[LEVELS // 2])


def drift(frozen: Reference, recent: Mapping[str, Sequence[float]]) -> Drift | None:
    """Return the drift of the class's recent samples from the frozen samples; None if either has no
    members.
    """
    fresh = freeze(frozen.metric, frozen.hardware, frozen.better, frozen.version, recent)
    before, now = healthy(frozen), healthy(fresh)
    if before is None or now is None:
        return None
    change = float(now.quantiles[LEVELS // 2] / before.quantiles[LEVELS // 2]) - 1
    if frozen.better is Better.LOWER:
        change = -change
    return Drift(change, abs(change) > ALARM)
