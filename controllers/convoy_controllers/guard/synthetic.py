"""Synthetic telemetry of jobs with known faults, for tests, benches and the simulator.

The noise matches two public traces (tests/data/straggler). The time of a rank's window varies by 0.5 %
(lag-1 autocorrelation 0.2), and the time of a micro-batch by 1 %. Ranks differ permanently by 0.7 %. The
work of micro-batches varies by 0 or 20 %, and each stage has its own time per unit of work. A rank also
takes longer in a few random windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from convoy_controllers.guard.faults import Effects, Fault
from convoy_controllers.guard.telemetry import Floats, Group, Layout, Table


@dataclass(frozen=True, slots=True)
class Job:
    """Parameters of a synthetic job. The ranks of a node are neighbours in tensor, then data, then pipeline
    order.
    """

    stages: int = 4
    replicas: int = 8
    lanes: int = 1
    """Number of ranks that share one stage of a replica (tensor parallelism)."""
    per_node: int = 8
    per_rack: int = 4
    """Number of nodes per rack."""
    micro: int = 8
    seconds: float = 1.0
    """Mean seconds of a rank's compute in one window."""
    sigma: float = 0.005
    rho: float = 0.2
    micro_sigma: float = 0.01
    offset: float = 0.007
    work: float = 0.0
    """Relative spread of the micro-batches' work."""
    last_stage: float = 1.0
    """Duration of the last stage relative to each other stage."""
    classes: int = 1
    """Number of classes of hardware. Each class takes 30 % longer than the previous class. All ranks of a
    replica have one class.
    """
    tokens: bool = False
    """True if ranks report tokens."""
    groups: bool = True
    """True if ranks report communicators."""

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return self.stages * self.replicas * self.lanes

    def layout(self) -> Layout:
        """Return the layout of the ranks."""
        rank = np.arange(self.size)
        replica = rank // self.lanes % self.replicas
        node = rank // self.per_node
        return Layout(
            stage=rank // (self.lanes * self.replicas),
            replica=replica,
            node=node,
            rack=node // self.per_rack,
            hardware=replica % self.classes,
        )


def play(job: Job, faults: Sequence[Fault], windows: int, seed: int) -> Iterator[Table]:
    """Yield the tables of `windows` windows; each window covers one step."""
    return _Play(job, faults, seed).tables(windows)


class _Play:
    def __init__(self, job: Job, faults: Sequence[Fault], seed: int) -> None:
        self._job, self._faults, self._rng = job, faults, np.random.default_rng(seed)
        self._layout = job.layout()
        self._offset = self._rng.normal(0, job.offset, job.size)
        self._offset += np.log(1.3) * self._layout.hardware
        self._noise = self._rng.normal(0, job.sigma, job.size)
        # Each stage reacts differently to the work, as attention and the loss do: vary the part of its time
        # that grows with the square of the work.
        self._sensitivity = 1 + 0.4 * np.cos(np.arange(job.stages) * 2.4)
        self._weight = np.where(np.arange(job.stages) == job.stages - 1, job.last_stage, 1.0)

    def tables(self, windows: int) -> Iterator[Table]:
        return (self._table(number) for number in range(1, windows + 1))

    def _table(self, number: int) -> Table:
        job, rng, layout = self._job, self._rng, self._layout
        effects = Effects.of(self._faults, layout, number, rng)
        micro, load = self._micro(effects)
        compute = micro.sum(axis=1)
        optimizer = 0.02 * job.seconds * np.exp(rng.normal(0, 0.02, job.size))
        data = job.seconds * (0.001 * rng.exponential(1, job.size) + effects.data)
        host = job.seconds * (0.01 * rng.gamma(20, 1 / 20, job.size) + effects.host)
        own = compute + data + host
        slowest = np.zeros((job.replicas, job.stages))
        np.maximum.at(slowest, (layout.replica, layout.stage), own)
        replica = (slowest.sum(axis=1) + (job.micro - 1) * slowest.max(axis=1)) / job.micro
        groups = self._groups(own, effects)
        traffic = max((float(np.min(group.seconds)) for group in groups), default=0.05 * job.seconds)
        save = effects.save * job.seconds
        wall = np.full(job.size, replica.max() + traffic + optimizer.max() + save)
        silent = effects.silent
        columns = [wall, compute, optimizer, data, wall - own - optimizer - save, host]
        wall, compute, optimizer, data, wait, host = (np.where(silent, np.nan, one) for one in columns)
        micro[silent] = np.nan
        tokens = np.round(4096 * job.micro * load[layout.replica])
        for group in groups:
            group.seconds[silent[group.members]] = np.nan
        return Table(
            first=number,
            last=number,
            wall=wall,
            compute=compute,
            optimizer=optimizer,
            data=data,
            wait=wait,
            save=np.where(silent, np.nan, save),
            host=host,
            tokens=np.where(silent | (not job.tokens), np.nan, tokens),
            clock=np.where(silent, np.nan, effects.clock),
            throttled=effects.throttled & ~silent,
            micro=micro,
            groups=tuple(groups) if job.groups else (),
        )

    def _micro(self, effects: Effects) -> tuple[Floats, Floats]:
        """Return the micro-batch times by rank (all forward passes, then all backward passes), and the mean
        work by replica.
        """
        job, rng, layout = self._job, self._rng, self._layout
        fresh = rng.normal(0, job.sigma * np.sqrt(1 - job.rho**2), job.size)
        self._noise = job.rho * self._noise + fresh
        late = np.where(rng.random(job.size) < 0.002, rng.exponential(0.2, job.size), 0.0)
        work = rng.normal(0, job.work + effects.work, (job.replicas, job.micro))
        load = np.exp(work)
        # One part of the time grows linearly with the work, the other part with its square.
        sensitivity = self._sensitivity[:, None, None]
        stage = np.log((1 - 0.3 * sensitivity) * load + 0.3 * sensitivity * load**2)[
            layout.stage, layout.replica
        ]
        each = job.seconds / job.micro * self._weight[layout.stage][:, None]
        slow = (self._offset + self._noise + late + effects.compute)[:, None]
        times = [
            each * part * np.exp(slow + stage + rng.normal(0, job.micro_sigma, stage.shape))
            for part in (1 / 3, 2 / 3)
        ]
        return np.concatenate(times, axis=1), load.mean(axis=1)

    def _groups(self, own: Floats, effects: Effects) -> list[Group]:
        job, ranks = self._job, np.arange(self._job.size)
        grid = ranks.reshape(job.stages, job.replicas, job.lanes)
        found = []
        if job.replicas > 1:
            for stage in range(job.stages):
                for lane in range(job.lanes):
                    found.append(
                        self._group(f"dp-{stage}-{lane}", "dp", grid[stage, :, lane], 0.05, own, effects)
                    )
        for replica in range(job.replicas if job.stages > 1 else 0):
            for lane in range(job.lanes):
                for stage in range(job.stages - 1):
                    pair = grid[stage : stage + 2, replica, lane]
                    found.append(self._group(f"pp-{stage}-{replica}-{lane}", "pp", pair, 0.01, own, effects))
        if job.lanes > 1:
            for stage in range(job.stages):
                for replica in range(job.replicas):
                    lanes = grid[stage, replica]
                    found.append(self._group(f"tp-{stage}-{replica}", "tp", lanes, 0.03, own, effects))
        return found

    def _group(
        self, name: str, kind: str, members: np.ndarray, part: float, own: Floats, effects: Effects
    ) -> Group:
        job = self._job
        transfer = part * job.seconds * effects.transfer(members, self._layout)
        transfer *= np.exp(self._rng.normal(0, 0.02))
        waits = own[members].max() - own[members]
        return Group(name, kind, members, int(part * 1e10), 1, transfer + waits)
