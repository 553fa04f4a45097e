"""One simulated job in its incarnations: it steps, tells of it, and is watched."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.faults import Fault
from convoy_controllers.guard.findings import Report
from convoy_controllers.guard.rank_placement import grouped
from convoy_controllers.guard.state import State, initial_state
from convoy_controllers.guard.suspicions import SuspicionRecord, blamed, noticeable, update_suspicions
from convoy_controllers.guard.synthetic import Job, play
from convoy_controllers.guard.telemetry import Layout, Table
from convoy_controllers.guard.window_collector import WindowCollector
from convoy_controllers.simulate.guard.harm import Ills
from convoy_controllers.simulate.guard.telling import Post, Way, windows
from convoy_controllers.simulate.kernel import Kernel

RESTART = 60.0
"""Seconds from the last step of an incarnation to the first of the next."""
SAVES = 300.0
"""Seconds between two checkpoints that cost nothing."""
_BLIND = 12
"""Windows after a harm begins, for which nothing need be told of it."""


@dataclass
class Told:
    """What the detector has said, and of how many windows."""

    while_harmed: Counter[str] = field(default_factory=Counter)
    """Causes, from a while after the first harm on; where nothing is to be harmed, from a while on."""
    harmed: int = 0
    ever: Counter[str] = field(default_factory=Counter)
    windows: int = 0
    accused: set[int] = field(default_factory=set)
    """Hardware that was ever accused, for however short a time."""
    dropped: int = 0
    """Windows that made no sense, or came too late."""


class Training:
    """A job on some of the hardware."""

    def __init__(
        self, kernel: Kernel, job: Job, nodes: list[int], ills: Ills, way: Way | None = None, seed: int = 0
    ) -> None:
        self.kernel, self.job, self.nodes, self.ills = kernel, job, nodes, ills
        self.told = Told()
        self.held: dict[str, SuspicionRecord] = {}
        """By hardware."""
        self.noticed: dict[str, SuspicionRecord] = {}
        """So, what may lie in it and need not."""
        self.gains: dict[str, float] = {}
        """Seconds by which the last window would have been shorter without it."""
        self.walls: list[float] = []
        """Seconds of the steps of this incarnation."""
        self.steps: list[tuple[int, float]] = []
        """Of all incarnations: its number, and seconds."""
        self.ended = False
        self.deaf: set[int] = set()
        """Hardware whose agent is not heard."""
        self.on_step: Callable[[], None] = lambda: None
        """Called after each step."""
        self._way, self._seed = way or Way(), seed
        self.born = kernel.now
        """What minutes are counted from, in Unix seconds."""
        self.incarnation = 0
        self._collector = WindowCollector(job.size)
        self._ages: dict[int, int] = {}
        self._start()

    @property
    def minute(self) -> float:
        """On the clock that harms begin by."""
        return (self.kernel.now - self.born) / 60

    @property
    def saved(self) -> float:
        """When it last saved its state, in Unix seconds."""
        return self.kernel.now - (self.kernel.now - self.born) % SAVES

    def restart(self, nodes: list[int], job: Job | None = None) -> None:
        """Another incarnation, on these machines."""
        self.nodes, self.job = nodes, job or self.job
        self.incarnation += 1
        self.held, self.noticed = {}, {}
        self._start(RESTART)

    def end(self) -> None:
        """It is done."""
        self.ended, self.held, self.noticed = True, {}, {}

    def _start(self, pause: float = 0.0) -> None:
        self._layout: Layout = self.job.layout()
        self._state: State = initial_state(self._layout)
        self._collector.reset(self.incarnation, self.job.size)
        self._post = Post(self._way, random.Random(self._seed))  # noqa: S311 - chance that can be repeated
        self._faults: list[Fault] = []
        self.walls = []
        seed = self._seed * 1000 + self.incarnation
        self._tables: Iterator[Table] = play(self.job, self._faults, 1 << 40, seed)
        self._number = 0
        self.kernel.after(pause, partial(self._step, self.incarnation))

    def _step(self, incarnation: int) -> None:
        """One window of the incarnation that asked for it."""
        if self.ended or incarnation != self.incarnation:
            return
        self._number += 1
        self._faults[:] = self.ills.felt(self.job, self.nodes, self.minute, self._number, self._ages)
        table = next(self._tables)
        known = table.wall[~np.isnan(table.wall)]
        wall = float(known.max()) if len(known) else self.walls[-1] if self.walls else self.job.seconds
        self.kernel.after(wall, lambda: self._done(incarnation, table, wall))

    def _done(self, incarnation: int, table: Table, wall: float) -> None:
        if self.ended or incarnation != self.incarnation:
            return
        self.walls.append(wall)
        self.steps.append((incarnation, wall))
        lies = self.ills.lies(self.job, self.nodes, self.minute)
        told = [one for one in windows(table, lies) if self._node(one.rank) not in self.deaf]
        for window in self._post.carry(told):
            for ready in self._collector.add(incarnation, window):
                self._state, report = advance(self._state, ready)
                self._heard(report)
        self.told.dropped = self._collector.dropped
        self.on_step()
        self._step(incarnation)

    def _node(self, rank: int) -> int:
        return self.nodes[rank // self.job.per_node]

    def _heard(self, report: Report) -> None:
        found = [
            (grouped(finding.ranks, lambda rank: f"hw{self._node(rank)}"), finding)
            for finding in report.findings
        ]
        steps = report.last - report.first + 1
        self.held = update_suspicions(self.held, found, self._layout.size, steps, self.kernel.now)
        self.noticed = update_suspicions(
            self.noticed, found, self._layout.size, steps, self.kernel.now, noticeable
        )
        self.gains |= {name: finding.lost for names, finding in found for name in names if blamed(finding)}
        told, causes = self.told, {finding.cause.value for finding in report.findings}
        told.windows += 1
        told.ever.update(causes)
        places = {int(self._layout.node[rank]) for finding in report.findings for rank in finding.ranks}
        told.accused |= {self.nodes[place] for place in places}
        lasts = any(age >= _BLIND for age in self._ages.values()) and self._faults
        if lasts or (not self.ills.harms and told.windows > _BLIND):
            told.harmed += 1
            told.while_harmed.update(causes)
