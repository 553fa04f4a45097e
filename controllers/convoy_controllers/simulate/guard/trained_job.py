"""A simulated training job. It steps and sends telemetry, and the detector processes the telemetry."""

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
"""Seconds from the last step of an incarnation to the first step of the next incarnation."""
CHECKPOINT_SECONDS = 300.0
"""Seconds between two checkpoints. A checkpoint takes no time."""
_GRACE_WINDOWS = 12
"""Number of windows after a fault starts in which the detector need not report it."""


@dataclass
class Detections:
    """Causes that the detector has reported, and the number of telemetry windows that it has processed."""

    causes_while_faulty: Counter[str] = field(default_factory=Counter)
    """Number of windows with a report of each cause, counted while a fault is active.

    The count starts _GRACE_WINDOWS windows after the first fault starts. If the setup has no fault, it
    starts _GRACE_WINDOWS windows after the job starts.
    """
    windows_while_faulty: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    windows: int = 0
    accused: set[int] = field(default_factory=set)
    """Numbers of the machines that were ever accused."""
    dropped: int = 0
    """Number of windows that were dropped as invalid or too late."""


class TrainedJob:
    """A job on some machines of the fleet."""

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
        """Suspicions that may lead to action, by machine name."""
        self.noticed: dict[str, SuspicionRecord] = {}
        """Weaker suspicions by machine name: the machine is one of several possible causes."""
        self.gains: dict[str, float] = {}
        """Seconds by which the last window would have been shorter without a machine, by its name."""
        self.walls: list[float] = []
        """Seconds of each step of this incarnation."""
        self.steps: list[tuple[int, float]] = []
        """Incarnation and seconds of each step, for all incarnations."""
        self.ended = False
        self.silent: set[int] = set()
        """Numbers of machines whose agent is disconnected, so that their windows are lost."""
        self.on_step: Callable[[], None] = lambda: None
        """Called after each step."""
        self._delivery_faults, self._seed = delivery or DeliveryFaults(), seed
        self.time_origin = kernel.now
        """Unix time in seconds from which minutes are counted."""
        self.incarnation = 0
        self._collector = WindowCollector(job.size)
        self._ages: dict[int, int] = {}
        self._start()

    @property
    def minute(self) -> float:
        """Minutes since `time_origin`. The faults start and end by this clock."""
        return (self.kernel.now - self.time_origin) / 60

    @property
    def saved(self) -> float:
        """Unix time in seconds of the last checkpoint."""
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
        """Start one step of the job, which gives one telemetry window per rank. Do nothing if `incarnation`
        is over.
        """
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
