"""What healthy nodes of one hardware class reach in one metric: frozen, and watched for drift.

The reference distribution is that of the medoid, the node whose samples are nearest to all the others', as
in SuperBench (ATC '24, "Proactive validation"). It is frozen under a version, so that a fleet that decays
slowly cannot take it along.
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
"""Quantiles that stand for the samples of a node."""
ALARM = 0.02
"""A medoid that has moved by more than this share is an alarm."""
_LEARNED = 0.95
"""Quantile of the members' distances from the medoid that a healthy node is allowed."""
_LEAST_SPREAD = 0.003
"""Of the medians, and of samples: no metric is steadier than this share."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Of one metric and one class (accelerator, driver, firmware, power cap). Members without order."""

    metric: str
    hardware: str
    better: Better
    version: int
    members: tuple[tuple[str, tuple[float, ...]], ...]
    """Hardware id, then quantiles of its samples from least to most."""


@dataclass(frozen=True, slots=True)
class Healthy:
    """What a node is held against."""

    count: int
    """Members, the node itself excluded."""
    quantiles: Row
    """Of the medoid."""
    middle: float
    """Median of the members' medians."""
    spread: float
    """Their robust standard deviation."""
    distance: float
    """From the medoid, as far as healthy members are."""
    variation: float
    """Median of the members' coefficients of variation."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How far the medoid of recent samples is from the frozen one's."""

    moved: float
    """Share of the frozen median; below zero it is slower, whichever way the metric is good."""
    alarm: bool


def freeze(
    metric: str, hardware: str, better: Better, version: int, samples: Mapping[str, Sequence[float]]
) -> Reference:
    """The reference that these nodes' samples make. Nodes with a value that is no figure are left out."""
    rows = {node: quantiles(row) for node, row in samples.items()}
    members = tuple(
        (node, tuple(float(value) for value in row)) for node, row in sorted(rows.items()) if row is not None
    )
    return Reference(metric, hardware, better, version, members)


def quantiles(samples: Sequence[float]) -> Row | None:
    """The samples on a fixed grid of levels; None if there are none, or not all are positive figures."""
    row = np.asarray(samples, float)
    if not row.size or not np.isfinite(row).all() or (row <= 0).any():
        return None
    return np.asarray(np.quantile(row, (np.arange(LEVELS) + 0.5) / LEVELS), float)


def healthy(reference: Reference, without: str = "") -> Healthy | None:
    """What all members but one reach; None where there are none."""
    # Whoever is no member is held against the same as all others that are none.
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
    """The area by which the samples are worse than the medoid's, over its median.

    The integral of max(0, F(t) - F0(t)), taken along the levels instead of the values: that is one area.
    """
    worse = medoid - row if better is Better.HIGHER else row - medoid
    return float(np.maximum(worse, 0).mean() / medoid[LEVELS // 2])


def drift(frozen: Reference, recent: Mapping[str, Sequence[float]]) -> Drift | None:
    """How recent samples of the same class compare; None where there is nothing to compare."""
    fresh = freeze(frozen.metric, frozen.hardware, frozen.better, frozen.version, recent)
    before, now = healthy(frozen), healthy(fresh)
    if before is None or now is None:
        return None
    moved = float(now.quantiles[LEVELS // 2] / before.quantiles[LEVELS // 2]) - 1
    if frozen.better is Better.LOWER:
        moved = -moved
    return Drift(moved, abs(moved) > ALARM)
