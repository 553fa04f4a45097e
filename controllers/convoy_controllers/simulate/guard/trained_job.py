"""A simulated training job: it steps, sends telemetry, and the detector watches it."""

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
from convoy_controllers.simulate.guard.hardware_faults import FleetFaults
from convoy_controllers.simulate.guard.window_delivery import DeliveryFaults, WindowDelivery, windows
from convoy_controllers.simulate.kernel import Kernel

RESTART_SECONDS = 60.0
"""Seconds from the last step of an incarnation to the first of the next."""
CHECKPOINT_SECONDS = 300.0
"""Seconds between two checkpoints. They cost no time."""
_GRACE_WINDOWS = 12
"""Windows after the start of a fault in which the detector need not report it yet."""


@dataclass
class Detections:
    """Causes that the detector reported, and counts of windows."""

    causes_while_faulty: Counter[str] = field(default_factory=Counter)
    """Windows with each cause, counted from _GRACE_WINDOWS after the first fault. Without any fault in the
    setup, counted from _GRACE_WINDOWS after the start.
    """
    windows_while_faulty: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    windows: int = 0
    accused: set[int] = field(default_factory=set)
    """Hardware that was accused at least once."""
    dropped: int = 0
    """Windows that were invalid or too late."""


class TrainedJob:
    """A job on some nodes of the fleet."""

    def __init__(
        self,
        kernel: Kernel,
        job: Job,
        nodes: list[int],
        faults: FleetFaults,
        delivery: DeliveryFaults | None = None,
        seed: int = 0,
    ) -> None:
        self.kernel, self.job, self.nodes, self.faults = kernel, job, nodes, faults
        self.detections = Detections()
        self.held: dict[str, SuspicionRecord] = {}
        """Suspicions that may lead to action, by hardware name."""
        self.noticed: dict[str, SuspicionRecord] = {}
        """Weaker suspicions, by hardware name: the node is one of several possible causes."""
        self.gains: dict[str, float] = {}
        """Seconds that the last window would have been shorter without this hardware, by its name."""
        self.walls: list[float] = []
        """Durations of the steps of this incarnation, in seconds."""
        self.steps: list[tuple[int, float]] = []
        """Steps of all incarnations: the incarnation and the duration in seconds."""
        self.ended = False
        self.silent: set[int] = set()
        """Hardware whose agent is disconnected, so that its windows are lost."""
        self.on_step: Callable[[], None] = lambda: None
        """Called after each step."""
        self._delivery_faults, self._seed = delivery or DeliveryFaults(), seed
        self.time_origin = kernel.now
        """The time from which minutes are counted, in Unix seconds."""
        self.incarnation = 0
        self._collector = WindowCollector(job.size)
        self._ages: dict[int, int] = {}
        self._start()

    @property
    def minute(self) -> float:
        """Minutes since `time_origin`. Faults begin and end by this clock."""
        return (self.kernel.now - self.time_origin) / 60

    @property
    def saved(self) -> float:
        """The time of the last checkpoint, in Unix seconds."""
        return self.kernel.now - (self.kernel.now - self.time_origin) % CHECKPOINT_SECONDS

    def restart(self, nodes: list[int], job: Job | None = None) -> None:
        """Start another incarnation on these nodes."""
        self.nodes, self.job = nodes, job or self.job
        self.incarnation += 1
        self.held, self.noticed = {}, {}
        self._start(RESTART_SECONDS)

    def end(self) -> None:
        """End the job."""
        self.ended, self.held, self.noticed = True, {}, {}

    def _start(self, pause: float = 0.0) -> None:
        self._layout: Layout = self.job.layout()
        self._state: State = initial_state(self._layout)
        self._collector.reset(self.incarnation, self.job.size)
        self._delivery = WindowDelivery(self._delivery_faults, random.Random(self._seed))  # noqa: S311 - chance that can be repeated
        self._job_faults: list[Fault] = []
        self.walls = []
        seed = self._seed * 1000 + self.incarnation
        self._tables: Iterator[Table] = play(self.job, self._job_faults, 1 << 40, seed)
        self._number = 0
        self.kernel.after(pause, partial(self._step, self.incarnation))

    def _step(self, incarnation: int) -> None:
        """Start one window, unless its incarnation is over."""
        if self.ended or incarnation != self.incarnation:
            return
        self._number += 1
        self._job_faults[:] = self.faults.of_job(self.job, self.nodes, self.minute, self._number, self._ages)
        table = next(self._tables)
        known = table.wall[~np.isnan(table.wall)]
        wall = float(known.max()) if len(known) else self.walls[-1] if self.walls else self.job.seconds
        self.kernel.after(wall, lambda: self._done(incarnation, table, wall))

    def _done(self, incarnation: int, table: Table, wall: float) -> None:
        if self.ended or incarnation != self.incarnation:
            return
        self.walls.append(wall)
        self.steps.append((incarnation, wall))
        false_slowdowns = self.faults.false_slowdowns(self.job, self.nodes, self.minute)
        sent = [one for one in windows(table, false_slowdowns) if self._node(one.rank) not in self.silent]
        for window in self._delivery.deliver(sent):
            for ready in self._collector.add(incarnation, window):
                self._state, report = advance(self._state, ready)
                self._record_report(report)
        self.detections.dropped = self._collector.dropped
        self.on_step()
        self._step(incarnation)

    def _node(self, rank: int) -> int:
        return self.nodes[rank // self.job.per_node]

    def _record_report(self, report: Report) -> None:
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
        detections, causes = self.detections, {finding.cause.value for finding in report.findings}
        detections.windows += 1
        detections.causes.update(causes)
        places = {int(self._layout.node[rank]) for finding in report.findings for rank in finding.ranks}
        detections.accused |= {self.nodes[place] for place in places}
        active = any(age >= _GRACE_WINDOWS for age in self._ages.values()) and self._job_faults
        if active or (not self.faults.faults and detections.windows > _GRACE_WINDOWS):
            detections.windows_while_faulty += 1
            detections.causes_while_faulty.update(causes)
