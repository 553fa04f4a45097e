"""One job whose ranks tell of their steps, and what was found in it."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

from convoy_controllers.guard.canary import Canary, Sight
from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.findings import Report
from convoy_controllers.guard.gather import Gather
from convoy_controllers.guard.placing import Standing
from convoy_controllers.guard.state import State, begin
from convoy_controllers.guard.suspicions import Held, held, noticeable
from convoy_controllers.guard.telemetry import Window
from convoy_controllers.keys import Key
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import FEWEST_WINDOWS, JobPace, Slow, error
from convoy_controllers.views import GuardView
from convoy_operator.limits import TokenBucket, Usage

_TABLES_PER_SECOND, _TABLES_AT_ONCE = 2.0, 64
"""Of one job. Ranks fold their steps into windows of a second; a hub that was away gets 32 of each."""
_USAGE_SECONDS = 10.0
"""In which half of what a job's looks have cost is forgotten."""


class WatchedJob:
    """One incarnation of a job."""

    def __init__(
        self, key: Key, uid: str, incarnation: int, standing: Standing, clock: Callable[[], float]
    ) -> None:
        self.key = key
        self.uid = uid
        self.incarnation = incarnation
        self.standing = standing
        self.gather = Gather(standing.layout.size, incarnation)
        self.state: State = begin(standing.layout)
        self.view: GuardView | None = None
        """As its plan last saw it."""
        self.held: dict[str, Held] = {}
        """By node."""
        self.noticed: dict[str, Held] = {}
        """By node, what may lie in it and need not."""
        self.canary = Canary()
        self._tables = TokenBucket(_TABLES_PER_SECOND, _TABLES_AT_ONCE, clock)
        self.usage = Usage(_USAGE_SECONDS, clock)
        """Of a processor, by its looks."""
        self._windows = 0
        self._walls: deque[float] = deque(maxlen=FEWEST_WINDOWS)
        """Seconds of a step, of the last windows."""

    @property
    def blind(self) -> bool:
        """Whether a rank that was made up to be slow was not found."""
        return self.canary.last is Sight.BLIND

    @property
    def tired(self) -> bool:
        """Whether it was looked at too often lately for another window to be taken in."""
        return self._tables.debt > 0

    def advance(self, window: Window, now: float) -> Report | None:
        """Takes one window in; the report on the newest table that it completes."""
        report = None
        for table in self.gather.take(self.incarnation, window):
            self._tables.reserve()
            self.canary.take(self.state, table, now)
            self.state, report = advance(self.state, table)
            found = [(self.standing.by_node(finding.ranks), finding) for finding in report.findings]
            size = self.standing.layout.size
            self.held = held(self.held, found, size, table.steps, now)
            self.noticed = held(self.noticed, found, size, table.steps, now, noticeable)
            if not np.isnan(table.wall).all():
                self._windows += 1
                self._walls.append(float(np.nanmax(table.wall - np.nan_to_num(table.save))) / table.steps)
        return report

    @property
    def step_seconds(self) -> float:
        """Of a step, the median of the last windows; 0 before it was seen to step."""
        return statistics.median(self._walls) if self._walls else 0.0

    @property
    def pace(self) -> JobPace | None:
        """How fast it is; None before it was seen to step."""
        if not self._walls:
            return None
        return JobPace(
            self.uid,
            self.incarnation,
            self.step_seconds,
            error(self._walls),
            self._windows,
            self.standing.layout.size,
            frozenset(self.standing.nodes),
            tuple(
                Slow(frozenset(one.ranks), one.cause.value, one.gain)
                for one in self.held.values()
                if one.lasting
            ),
        )

    def suspicion(self, node: str, one: Held) -> Suspicion:
        """What is held against a node, in the words of its life cycle."""
        since, seen = (datetime.fromtimestamp(time, UTC) for time in (one.since, one.seen))
        job = f"{self.key.namespace}/{self.key.name}"
        beside = tuple(other for other, held in self.held.items() if held.lasting and other != node)
        slowdown, cause = 1 + one.slowdown, one.cause.value
        return Suspicion(
            job, since, seen, slowdown, one.loss, cause, gain=one.gain, beside=beside, ranks=one.ranks
        )
