"""Cost of slowness: the duration of a step, compared with its duration if slow ranks, stages or replicas
were as fast as the others.

The model is a pipeline of S stages and M micro-batches (1F1B; S = 1 is plain data parallelism). A replica
takes `(sum of stages + (M - 1) x slowest stage) / M`. The step takes as long as its slowest replica. The
model leaves out the gradient exchange and other waits, which slowness does not change. See the what-if
analysis of Lin et al., OSDI 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convoy_controllers.guard.robust import Sorted, group_medians, zeroed
from convoy_controllers.guard.telemetry import Bools, Floats, Ints, Layout

IMBALANCED = 0.05
"""Minimum cost of imbalance to be reported, as a share of the modelled step time."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the modelled step time that each improvement would save, from 0 to 1."""

    named: float
    """Share of the step time that would be saved if the ranks with an alarm were as fast as their peers."""
    stages: float
    """Share of the step time that would be saved in addition to `named` if all stages took the same time."""
    replicas: float
    """Share of the step time that would be saved in addition to `named` if all replicas had the same work.
    The stages keep their durations.

    A replica's work is the largest time that at least half of its ranks take. A single late rank does not
    increase the work, because in a large job some rank is late in every step.
    """
    seconds: float
    """Modelled step time in seconds, without any improvement."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Positions of the ranks in the modelled pipeline."""

    cell: Ints
    """Number of each rank's cell: replica x `stages` + stage."""
    stages: int
    replicas: int

    @classmethod
    def of(cls, layout: Layout) -> Shape:
        """Return the positions of the ranks of a layout."""
        _, stage = np.unique(layout.stage, return_inverse=True)
        _, replica = np.unique(layout.replica, return_inverse=True)
        stages, replicas = int(stage.max()) + 1, int(replica.max()) + 1
        return cls(replica.reshape(-1) * stages + stage.reshape(-1), stages, replicas)

    def step(self, compute: Floats, micro: int) -> Floats:
        """Return the modelled step time in seconds by replica. The ranks of one cell wait for each other,
        so the slowest rank of a cell counts.
        """
        grid = np.zeros(self.stages * self.replicas)
        np.maximum.at(grid, self.cell, zeroed(compute))
        return self.times(grid.reshape(self.replicas, self.stages), micro)

    def delays(self, healthy: Floats, compute: Floats, micro: int) -> Floats:
        """Return by rank the seconds that its time in `compute` adds to the step while all other ranks take
        their time in `healthy`.

        The delay is 0 if other ranks already make the step as long: ranks of another class of hardware, or
        of a longer stage.
        """
        grid = np.zeros(self.stages * self.replicas)
        np.maximum.at(grid, self.cell, zeroed(healthy))
        rows = grid.reshape(self.replicas, self.stages)
        replica = self.cell // self.stages
        own = np.maximum(grid[self.cell], zeroed(compute))
        total = rows.sum(axis=1)[replica] - grid[self.cell] + own
        longest = np.maximum(rows.max(axis=1)[replica], own)
        step = (total + (micro - 1) * longest) / micro
        return np.asarray(np.maximum(0.0, step - self.times(rows, micro).max()))

    @staticmethod
    def times(grid: Floats, micro: int) -> Floats:
        """Return the modelled step time in seconds by replica. `grid`: seconds by replica and stage."""
        return np.asarray((grid.sum(axis=1) + (micro - 1) * grid.max(axis=1)) / micro)


def mended(compute: Floats, slow: Bools, groups: Ints) -> Floats:
    """Return `compute` with each slow rank's time replaced by the median of its healthy peers, if the
    median is less.
    """
    if not slow.any():
        return compute
    others = Sorted(np.where(slow, np.nan, compute), groups).others()
    return np.where(slow & ~np.isnan(others), np.fmin(compute, others), compute)


def shares(compute: Floats, slow: Bools, groups: Ints, shape: Shape, micro: int) -> Shares:
    """Return the shares of the modelled step time that improvements would save. `slow`: mask of the ranks
    with an alarm; `groups`: peer group by rank; `micro`: number of micro-batches in a step.
    """
    now = float(shape.step(compute, micro).max())
    if now <= 0:
        return Shares(0.0, 0.0, 0.0, 0.0)
    better = mended(compute, slow, groups)
    flat = np.full(shape.stages * shape.replicas, np.nan)
    np.fmax.at(flat, shape.cell, better)
    stage = zeroed(group_medians(flat, np.tile(np.arange(shape.stages), shape.replicas)))
    grid: Floats = zeroed(flat).reshape(shape.replicas, shape.stages)
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
    """Return the relative work of each replica; 1 is the usual work. A replica's work is the largest
    relative time that at least half of its ranks take.
    """
    usual = group_medians(compute, groups)[groups]
    times = compute / np.maximum(usual, 1e-12)
    return np.nan_to_num(Sorted(times, shape.cell // shape.stages).low_medians(), nan=1.0)
