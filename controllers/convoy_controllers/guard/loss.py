"""What slowness costs: the step with the slow ranks, or stages, or replicas as the others are, beside the
step as is.

The model is that of a pipeline of S stages and M micro-batches (1F1B; S = 1: plain data parallel): a replica
takes `(sum of stages + (M - 1) x slowest stage) / M`, the step as long as its slowest replica. Gradients and
other waiting come on top and are not changed. As in the what-if analysis of Lin et al., OSDI 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convoy_controllers.guard.robust import Sorted, group_medians
from convoy_controllers.guard.telemetry import Bools, Floats, Ints, Layout

IMBALANCED = 0.05
"""Share of the step that imbalance must cost to be told."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the step's own part: how much shorter it would be. 0 to 1."""

    named: float
    """With the named ranks as their peers are."""
    stages: float
    """With stages alike besides."""
    replicas: float
    """With the work of replicas alike besides, stages as they are: what half of a replica's ranks have at
    least. In a large job somebody is late in every step, and that is no work."""
    seconds: float
    """The step's own part as it is."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Where ranks stand, prepared."""

    cell: Ints
    """By rank, the number of its (replica, stage); replicas are blocks of `stages`."""
    stages: int
    replicas: int

    @classmethod
    def of(cls, layout: Layout) -> Shape:
        """Of a layout."""
        _, stage = np.unique(layout.stage, return_inverse=True)
        _, replica = np.unique(layout.replica, return_inverse=True)
        stages, replicas = int(stage.max()) + 1, int(replica.max()) + 1
        return cls(replica.reshape(-1) * stages + stage.reshape(-1), stages, replicas)

    def step(self, compute: Floats, micro: int) -> Floats:
        """Seconds by replica. Ranks of one cell work in step: the slowest counts."""
        grid = np.zeros(self.stages * self.replicas)
        np.maximum.at(grid, self.cell, np.nan_to_num(compute))
        return self.times(grid.reshape(self.replicas, self.stages), micro)

    def delays(self, healthy: Floats, compute: Floats, micro: int) -> Floats:
        """By rank, by how many seconds the step is longer for its time alone, all others' being `healthy`.

        Nothing where others would keep the step waiting as long: another class of hardware, a longer stage.
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
        """Seconds by replica, of times by replica and stage."""
        return np.asarray((grid.sum(axis=1) + (micro - 1) * grid.max(axis=1)) / micro)


def mended(compute: Floats, slow: Bools, groups: Ints) -> Floats:
    """The times with those of slow ranks as the median of their other peers, where that is less."""
    others = Sorted(np.where(slow, np.nan, compute), groups).others()
    return np.where(slow & ~np.isnan(others), np.fmin(compute, others), compute)


def shares(compute: Floats, slow: Bools, groups: Ints, shape: Shape, micro: int) -> Shares:
    """What mending would save. `micro`: micro-batches of a step."""
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
    """By replica, how much more work it has than others, as half of its ranks show it: 1 is as much."""
    usual = group_medians(compute, groups)[groups]
    times = compute / np.maximum(usual, 1e-12)
    return np.nan_to_num(Sorted(times, shape.cell // shape.stages).low_medians(), nan=1.0)
