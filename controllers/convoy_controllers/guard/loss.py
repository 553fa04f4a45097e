"""Cost of slowness: the step as it is, compared with the step if slow ranks, stages or replicas were like
others.

The model is a pipeline of S stages and M micro-batches (1F1B; S = 1 is plain data parallelism). A replica
takes `(sum of stages + (M - 1) x slowest stage) / M`; the step takes as long as its slowest replica.
Gradient exchange and other waits come on top and are unchanged. See the what-if analysis of Lin et al.,
OSDI 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convoy_controllers.guard.robust import Sorted, group_medians
from convoy_controllers.guard.telemetry import Bools, Floats, Ints, Layout

IMBALANCED = 0.05
"""Share of the step that imbalance must cost to be reported."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the step's own part that would be saved, from 0 to 1."""

    named: float
    """Saved if the named ranks were like their peers."""
    stages: float
    """Saved in addition if all stages took the same time."""
    replicas: float
    """Saved in addition if all replicas had the same work, with stages unchanged. A replica's work is what
    at least half of its ranks show: in a large job some rank is late in every step, and that is not
    work.
    """
    seconds: float
    """Seconds of the step's own part as it is."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Positions of the ranks, prepared for the model."""

    cell: Ints
    """Number of each rank's (replica, stage) cell; a replica is a block of `stages` cells."""
    stages: int
    replicas: int

    @classmethod
    def of(cls, layout: Layout) -> Shape:
        """Return the shape of a layout."""
        _, stage = np.unique(layout.stage, return_inverse=True)
        _, replica = np.unique(layout.replica, return_inverse=True)
        stages, replicas = int(stage.max()) + 1, int(replica.max()) + 1
        return cls(replica.reshape(-1) * stages + stage.reshape(-1), stages, replicas)

    def step(self, compute: Floats, micro: int) -> Floats:
        """Return the seconds by replica. The ranks of one cell wait for each other, so the slowest counts."""
        grid = np.zeros(self.stages * self.replicas)
        np.maximum.at(grid, self.cell, np.nan_to_num(compute))
        return self.times(grid.reshape(self.replicas, self.stages), micro)

    def delays(self, healthy: Floats, compute: Floats, micro: int) -> Floats:
        """Return by rank the seconds that its compute alone adds to the step while all others take
        `healthy`.

        The delay is 0 if others delay the step as much: another class of hardware, or a longer stage.
        """
        grid = np.zeros(self.stages * self.replicas)
        np.maximum.at(grid, self.cell, np.nan_to_num(healthy))
        rows = grid.reshape(self.replicas, self.stages)
        replica = self.cell // self.stages
        own = np.maximum(grid[self.cell], np.nan_to_num(compute))
        total = rows.sum(axis=1)[replica] - grid[self.cell] + own
        longest = np.maximum(rows.max(axis=1)[replica], own)
        step = (total + (micro - 1) * longest) / micro
        return np.asarray(np.maximum(0.0, step - self.times(rows, micro).max()))

    @staticmethod
    def times(grid: Floats, micro: int) -> Floats:
        """Return the seconds by replica, from times by replica and stage."""
        return np.asarray((grid.sum(axis=1) + (micro - 1) * grid.max(axis=1)) / micro)


def mended(compute: Floats, slow: Bools, groups: Ints) -> Floats:
    """Return the times with each slow rank's time replaced by the median of its other peers, if that is
    less.
    """
    others = Sorted(np.where(slow, np.nan, compute), groups).others()
    return np.where(slow & ~np.isnan(others), np.fmin(compute, others), compute)


def shares(compute: Floats, slow: Bools, groups: Ints, shape: Shape, micro: int) -> Shares:
    """Return the savings. `micro`: micro-batches of a step."""
    now = float(shape.step(compute, micro).max())
    if now <= 0:
        return Shares(0.0, 0.0, 0.0, 0.0)
    better = mended(compute, slow, groups)
    flat = np.full(shape.stages * shape.replicas, np.nan)
    np.fmax.at(flat, shape.cell, better)
    stage = np.nan_to_num(group_medians(flat, np.tile(np.arange(shape.stages), shape.replicas)))
    grid: Floats = np.nan_to_num(flat).reshape(shape.replicas, shape.stages)
    rest = float(shape.times(grid, micro).max())
    even = grid * (stage.mean() / np.maximum(stage, 1e-12)) if stage.all() else grid
    alike = np.broadcast_to(stage, grid.shape)
    longer = _load(better, groups, shape)[:, None] * stage
    return Shares(
        named=1 - rest / now,
        stages=max(0.0, (rest - float(shape.times(even, micro).max())) / now),
        replicas=max(0.0, float(shape.times(longer, micro).max() - shape.times(alike, micro).max()) / now),
        seconds=now,
    )


def _load(compute: Floats, groups: Ints, shape: Shape) -> Floats:
    """Return by replica its relative work, as half of its ranks show it; 1 is the usual amount."""
    usual = group_medians(compute, groups)[groups]
    times = compute / np.maximum(usual, 1e-12)
    return np.nan_to_num(Sorted(times, shape.cell // shape.stages).low_medians(), nan=1.0)
