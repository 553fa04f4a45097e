"""A test of the detector. It slows one rank in copies of the job's last tables, and checks that the
detector reports this rank. A table has the telemetry of all ranks in one window.

A detector can stop working: the telemetry may be all zeros or NaN, the peers wrong, or the learned noise
too large. Its reports then look like those of a healthy job. The test distinguishes a broken detector from
a healthy job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.residuals import FEWEST
from convoy_controllers.guard.state import State
from convoy_controllers.guard.telemetry import Table

SLOWDOWN = 0.5
TABLES = 32
"""Number of tables in one test. The detector must find the slowed rank within them. The more noise a rank
has, the more tables the detector needs.
"""
SETTLE = 32
"""Number of tables before the first test. With fewer tables the noise estimate is unreliable."""
PERIOD_SECONDS = 3600.0
"""Seconds between two tests of one job's detector."""


class CanaryResult(StrEnum):
    """Result of one test of the detector."""

    DETECTED = "Detected"
    MISSED = "Missed"
    UNTESTED = "Untested"
    """No rank was suitable: each one has too few peers, has an alarm, or missed a window."""


@dataclass(slots=True)
class Canary:
    """State of the tests of one job's detector. Tables are stored only while a test is running."""

    tables_seen: int = 0
    due: float = 0.0
    before: State | None = None
    """The detector's state before the first stored table; None between tests."""
    tables: list[Table] = field(default_factory=list)
    last_result: CanaryResult = CanaryResult.UNTESTED

    def add(self, state: State, table: Table, now: float) -> bool:
        """Add a table to the running test. If no test is running, start one with this table if a test is
        due. The first test is due after SETTLE tables, each later test PERIOD_SECONDS after the previous
        one.

        `state`: the detector's state before the table. Return True if the table ended a test.
        """
        self.tables_seen += 1
        if self.before is None:
            # No test is possible without enough peers. So store no tables: a small job produces many of them.
            if (
                self.tables_seen <= SETTLE
                or now < self.due
                or np.bincount(state.setting.peers).max() < FEWEST
            ):
                return False
            self.before = state
        self.tables.append(table)
        if len(self.tables) < TABLES:
            return False
        self.last_result = run_canary(self.before, self.tables)
        self.before, self.tables, self.due = None, [], now + PERIOD_SECONDS
        return True


def run_canary(state: State, tables: Sequence[Table], slowdown: float = SLOWDOWN) -> CanaryResult:
    """Slow one rank by `slowdown` in these tables and return whether the detector reports the rank.

    `state` is the detector's state before the first table. Pass at least four tables. Neither `state` nor
    `tables` is changed. The slowed rank is one without an alarm.
    """
    rank = _healthy(state, tables)
    if rank is None:
        return CanaryResult.UNTESTED
    for table in tables:
        state, report = advance(state, slowed(table, rank, slowdown))
        if any(rank in finding.ranks for finding in report.findings):
            return CanaryResult.DETECTED
    return CanaryResult.MISSED


def slowed(table: Table, rank: int, slowdown: float) -> Table:
    """Return a copy of the table in which `rank` computes longer: by 50 % if `slowdown` is 0.5."""
    compute, wall = table.compute.copy(), table.wall + table.compute[rank] * slowdown
    compute[rank] *= 1 + slowdown
    micro = table.micro
    if micro is not None:
        micro = micro.copy()
        micro[rank] *= 1 + slowdown
    return replace(table, compute=compute, wall=wall, micro=micro)


def _healthy(state: State, tables: Sequence[Table]) -> int | None:
    """Return the rank with the most peers among the ranks that reported in every table and have no alarm.
    Return None if there is no such rank or it has too few peers.
    """
    peers = state.setting.peers
    reported = np.all([table.reported for table in tables], axis=0) & ~state.compute.alarmed
    if not reported.any():
        return None
    counts = np.where(reported, np.bincount(peers[reported], minlength=peers.max() + 1)[peers], 0)
    rank = int(counts.argmax())
    return rank if counts[rank] >= FEWEST else None
