"""A test of the detector: slow one rank in copies of the tables and check that the detector finds the rank.

A detector can stop working: the telemetry may be all zeros or NaN, the peers wrong, or the learned noise
too large. Its reports then look like those of a healthy job. The test distinguishes the two cases.
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
"""Number of tables within which the detector must find the slowed rank. Noisy ranks take longer to find."""
SETTLE = 32
"""Number of tables before the first test. The noise estimate is reliable only after them."""
PERIOD_SECONDS = 3600.0
"""Seconds between two tests."""


class CanaryResult(StrEnum):
    """Result of one test."""

    DETECTED = "Detected"
    MISSED = "Missed"
    UNTESTED = "Untested"
    """No rank could be slowed: each rank has too few peers or missed a window."""


@dataclass(slots=True)
class Canary:
    """The tests of one job. Between two tests no tables are stored."""

    tables_seen: int = 0
    due: float = 0.0
    before: State | None = None
    """The detector's state before the first stored table; None between tests."""
    tables: list[Table] = field(default_factory=list)
    last_result: CanaryResult = CanaryResult.UNTESTED

    def add(self, state: State, table: Table, now: float) -> bool:
        """Add a table and the detector's state before that table. Return True if a test ended."""
        self.tables_seen += 1
        if self.before is None:
            # Without enough peers there is no test. Then do not store the tables: a small job makes many of
            # them.
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

    `state` is the detector's state before the first table. A test needs at least four tables. Neither
    `state` nor `tables` is changed. The slowed rank is one without an alarm.
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
