"""Reads extracts of public traces as telemetry tables (tests/data/straggler/README.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import BadZipFile

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


_AXES = {"compute_20us": 5, "wall": 1, "optimizer": 3, "reduce_scatter": 3, "all_gather": 3}
"""Number of axes of each array in a file."""


def read(path: Path) -> Trace:
    """Read a trace from a file. Raises ValueError if the file cannot be read or is no trace."""
    try:
        held = np.load(path)
        known = set(held.files)
        arrays = {name: np.asarray(held[name], dtype=np.float64) for name in _AXES if name in known}
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or 'not readable'}") from error
    except (EOFError, ValueError, TypeError, AttributeError, BadZipFile) as error:
        # A file of a single array has no `files`.
        raise ValueError(f"{path}: not an .npz file with arrays of numbers") from error
    if missing := [name for name in _AXES if name not in arrays]:
        raise ValueError(f"{path}: no array {missing[0]!r}; a trace has {', '.join(_AXES)}")
    whole = arrays["compute_20us"].shape
    for name, axes in _AXES.items():
        if arrays[name].ndim != axes or arrays[name].shape != whole[:axes]:
            raise ValueError(
                f"{path}: array {name} has the shape {arrays[name].shape}, expected the first {axes} of "
                f"step, stage, replica, pass and micro-batch as in compute_20us, {whole}"
            )
    compute = arrays.pop("compute_20us")
    if not np.isfinite(compute).all() or (compute < 0).any() or not (compute.sum(axis=(3, 4)) > 0).all():
        raise ValueError(f"{path}: compute_20us needs a time above 0 for every step, stage and replica")
    if not compute.size:
        raise ValueError(f"{path}: compute_20us has no times: its shape is {whole}")
    return Trace(compute * UNIT, arrays.pop("wall"), arrays.pop("optimizer"), arrays)
