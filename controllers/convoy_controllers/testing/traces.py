"""Reads extracts of public traces as telemetry tables (tests/data/straggler/README.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from convoy_controllers.guard.telemetry import Floats, Group, Layout, Table

UNIT = 2e-5
"""Seconds in one unit of the stored compute times."""


@dataclass(frozen=True, eq=False)
class Trace:
    """A trace of steps.

    `compute` has seconds with the axes step, stage, replica, pass (forward, backward) and micro-batch.
    """

    compute: Floats
    wall: Floats
    optimizer: Floats
    kinds: dict[str, Floats]
    """Seconds of collectives among the replicas of a stage, by kind. The axes are step, stage and replica."""

    @property
    def layout(self) -> Layout:
        """Layout of the ranks. Each rank is on its own node."""
        _, stages, replicas, _, _ = self.compute.shape
        stage, replica = np.divmod(np.arange(stages * replicas), replicas)
        return Layout.of(stage.tolist(), replica.tolist())

    def rank(self, stage: int, replica: int) -> int:
        """Return the rank with this stage and replica."""
        return stage * int(self.compute.shape[2]) + replica

    def tables(self) -> list[Table]:
        """Return one table for each step. The first step has the number 1."""
        steps, stages, replicas, _, _ = self.compute.shape
        size = stages * replicas
        micro = self.compute.reshape(steps, size, -1)
        unknown, zero = np.full(size, np.nan), np.zeros(size)
        tables = []
        for number in range(steps):
            own, optimizer = micro[number].sum(axis=1), self.optimizer[number].reshape(-1)
            # A test may have slowed a rank, so make each step at least as long as its slowest rank.
            wall = np.maximum(np.full(size, self.wall[number]), (own + optimizer).max())
            tables.append(
                Table(
                    first=number + 1,
                    last=number + 1,
                    wall=wall,
                    compute=own,
                    optimizer=optimizer,
                    data=zero,
                    wait=wall - own - optimizer,
                    save=zero,
                    host=zero,
                    tokens=unknown,
                    clock=np.ones(size),
                    throttled=np.zeros(size, dtype=np.bool_),
                    micro=micro[number],
                    groups=self._groups(number, stages, replicas),
                )
            )
        return tables

    def slowed(self, stage: int, replica: int, factor: float, onset: int = 0) -> Trace:
        """Return a copy in which one rank computes `factor` times as long from step index `onset` on."""
        compute = self.compute.copy()
        compute[onset:, stage, replica] *= factor
        return replace(self, compute=compute)

    def without_slowness(self, stage: int, replica: int) -> Trace:
        """Return a copy in which the median speed of one rank is that of the other ranks in its stage."""
        own = self.compute.sum(axis=(3, 4))[:, stage]
        others = np.median(np.delete(own, replica, axis=1), axis=1)
        return self.slowed(stage, replica, 1 / float(np.median(own[:, replica] / others)))

    def _groups(self, step: int, stages: int, replicas: int) -> tuple[Group, ...]:
        return tuple(
            Group(
                f"{kind}-{stage}",
                kind,
                np.arange(stage * replicas, (stage + 1) * replicas),
                0,
                1,
                np.asarray(seconds[step, stage], dtype=np.float64),
            )
            for kind, seconds in self.kinds.items()
            for stage in range(stages)
        )


def read(path: Path) -> Trace:
    """Read a trace from a file."""
    with np.load(path) as held:
        return Trace(
            compute=held["compute_20us"] * UNIT,
            wall=held["wall"].astype(np.float64),
            optimizer=held["optimizer"].astype(np.float64),
            kinds={kind: held[kind] for kind in ("reduce_scatter", "all_gather")},
        )
