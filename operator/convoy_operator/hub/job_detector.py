"""The straggler detector of one job. It processes the steps that the job's ranks report."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

from convoy_controllers.guard.canary import Canary, CanaryResult
from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.findings import Report
from convoy_controllers.guard.rank_placement import RankPlacement
from convoy_controllers.guard.state import State, initial_state
from convoy_controllers.guard.suspicions import CAUSES, SuspicionRecord, noticeable, update_suspicions
from convoy_controllers.guard.telemetry import Position, Window
from convoy_controllers.guard.window_collector import WindowCollector
from convoy_controllers.keys import Key
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import FEWEST_WINDOWS, JobPace, Slow, error
from convoy_controllers.views import GuardView
from convoy_operator.limits import TokenBucket, Usage

_TABLES_PER_SECOND, _TABLES_AT_ONCE = 2.0, 64
"""Rate limit in tables per second and burst, for each job. A table holds one window of every rank.

Ranks merge the steps of a second into one window. After an outage the hub gets up to 32 windows from each
rank.
"""
_USAGE_SECONDS = 10.0
"""Half-life in seconds of the moving average of a detector's processor time."""


class JobDetector:
    """The straggler detector of one incarnation of a job."""

    def __init__(
        self, key: Key, uid: str, incarnation: int, placement: RankPlacement, clock: Callable[[], float]
    ) -> None:
        self.key = key
        self.uid = uid
        self.incarnation = incarnation
        self.placement = placement
        self.collector = WindowCollector(placement.layout.size, incarnation)
        self.state: State = initial_state(placement.layout)
        self.view: GuardView | None = None
        """The newest findings in the form that the job's plan uses; None before the first."""
        self.held: dict[str, SuspicionRecord] = {}
        """The suspicion against each node, by node name. It holds only slowness for which the node is
        blamed.
        """
        self.noticed: dict[str, SuspicionRecord] = {}
        """Slowness of each node that may be the node's fault but does not prove a fault, such as slow
        input; by node name.
        """
        self.canary = Canary()
        self.layout_unknown = False
        """True if all ranks exchange data as in a pipeline, but not all have reported their position."""
        self._by_roles = placement
        self._positions: dict[int, Position] | None = {}
        """Positions that ranks have reported so far, by rank; None once the layout is final."""
        self._exchanging: set[int] = set()
        """Ranks that exchanged data with single ranks in their newest window."""
        self._tables = TokenBucket(_TABLES_PER_SECOND, _TABLES_AT_ONCE, clock)
        self.usage = Usage(_USAGE_SECONDS, clock)
        """Processor time of this detector, as a moving average."""
        self._windows = 0
        self._walls: deque[float] = deque(maxlen=FEWEST_WINDOWS)
        """For each of the newest tables: the seconds per step of its slowest rank, without the time of
        saves.
        """

    @property
    def canary_missed(self) -> bool:
        """Return True if the detector did not detect the last injected slow canary."""
        return self.canary.last_result is CanaryResult.MISSED

    @property
    def overloaded(self) -> bool:
        """Return True if the job's rate limit of tables is used up. Further windows must then be dropped."""
        return self._tables.debt > 0

    def advance(self, window: Window, now: float) -> Report | None:
        """Add one window of a rank. If the window completes tables, process them and return the report on
        the newest of them. Otherwise return None.
        """
        report = None
        if self._positions is not None and window.position is not None:
            self._positions[window.rank] = window.position
        (self._exchanging.add if window.exchanges else self._exchanging.discard)(window.rank)
        for table in self.collector.add(self.incarnation, window):
            self._tables.reserve()
            self._choose_layout()
            self.canary.add(self.state, table, now)
            self.state, report = advance(self.state, table)
            found = [(self.placement.by_node(finding.ranks), finding) for finding in report.findings]
            size = self.placement.layout.size
            self.held = update_suspicions(self.held, found, size, table.steps, now)
            self.noticed = update_suspicions(self.noticed, found, size, table.steps, now, noticeable)
            if not np.isnan(table.wall).all():
                self._windows += 1
                self._walls.append(float(np.nanmax(table.wall - np.nan_to_num(table.save))) / table.steps)
        return report

    def _choose_layout(self) -> None:
        """Restart the detector with the layout that the ranks report, once all of them have reported it.
        Until then, compare no ranks of a job that seems to be a pipeline.

        Later reports are ignored: a detector that restarts again and again would find nothing.
        """
        size = self.placement.layout.size
        if self._positions is not None and len(self._positions) == size:
            placement = self._by_roles.with_positions(self._positions)
            self._positions, self.layout_unknown = None, False
        elif self._positions is not None and len(self._exchanging) == size and not self.layout_unknown:
            placement, self.layout_unknown = self._by_roles.without_peers(), True
        else:
            return
        self.placement, self.state, self.canary = placement, initial_state(placement.layout), Canary()
        self.held, self.noticed = {}, {}

    @property
    def step_seconds(self) -> float:
        """Return the median number of seconds of a step over the newest FEWEST_WINDOWS tables; 0 before the
        first table.
        """
        return statistics.median(self._walls) if self._walls else 0.0

    @property
    def pace(self) -> JobPace | None:
        """Return the job's median step time and its standard error; None before the first table."""
        if not self._walls:
            return None
        return JobPace(
            self.uid,
            self.incarnation,
            self.step_seconds,
            error(self._walls),
            self._windows,
            self.placement.layout.size,
            frozenset(self.placement.nodes),
            tuple(Slow(frozenset(one.ranks), one.cause.value, one.gain) for _, one in self._delays),
        )

    @property
    def _delays(self) -> list[tuple[str, SuspicionRecord]]:
        """Return the nodes that may delay the job now, with the accusation or suspicion against each."""
        both = (*self.held.items(), *self.noticed.items())
        return [(node, one) for node, one in both if one.lasting and one.cause in CAUSES]

    def suspicion(self, node: str, one: SuspicionRecord) -> Suspicion:
        """Return a suspicion against a node in the form that the NodeHealth stores."""
        since, seen = (datetime.fromtimestamp(time, UTC) for time in (one.since, one.seen))
        job = f"{self.key.namespace}/{self.key.name}"
        beside = tuple(dict.fromkeys(other for other, _ in self._delays if other != node))
        slowdown, cause = 1 + one.slowdown, one.cause.value
        return Suspicion(
            job, since, seen, slowdown, one.loss, cause, gain=one.gain, beside=beside, ranks=one.ranks
        )
