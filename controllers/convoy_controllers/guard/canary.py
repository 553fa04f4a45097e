"""Does the detector still see? A slow rank is made up in copies of the tables, and it must be told.

A detector that has gone blind (telemetry that is all zeros or NaN, peers mislaid, noise that was learned
wrongly) looks like a healthy job; this tells the two apart.
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
"""In which it must be told: where ranks scatter it takes longer."""
SETTLE = 32
"""Tables before the first try: until then noise is not known well."""
PERIOD_SECONDS = 3600.0
"""Between two tries."""


class CanaryResult(StrEnum):
    """What came of it."""

    DETECTED = "Detected"
    MISSED = "Missed"
    UNTESTED = "Untested"
    """Nobody can be judged: too few peers, or nobody was heard in every window."""


@dataclass(slots=True)
class Canary:
    """The tries of one job: it keeps some tables now and then, and says what came of them."""

    tables_seen: int = 0
    due: float = 0.0
    before: State | None = None
    """The detector's state before the tables that are kept; None between tries."""
    tables: list[Table] = field(default_factory=list)
    last_result: CanaryResult = CanaryResult.UNTESTED

    def add(self, state: State, table: Table, now: float) -> bool:
        """Takes in a table, and the state before it; whether a try has come to its end."""
        self.tables_seen += 1
        if self.before is None:
            # Tables of small jobs are many, and would be kept for nothing.
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
    """Whether a rank that takes `slowdown` longer in these tables (four or more) would be told.

    `state`: before the tables. Neither is changed. The rank is one that nobody suspects.
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
    """A copy in which the rank's own compute takes so much longer."""
    compute, wall = table.compute.copy(), table.wall + table.compute[rank] * slowdown
    compute[rank] *= 1 + slowdown
    micro = table.micro
    if micro is not None:
        micro = micro.copy()
        micro[rank] *= 1 + slowdown
    return replace(table, compute=compute, wall=wall, micro=micro)


def _healthy(state: State, tables: Sequence[Table]) -> int | None:
    """The unsuspected rank with the most peers that was heard throughout."""
    peers = state.setting.peers
    reported = np.all([table.reported for table in tables], axis=0) & ~state.compute.alarmed
    if not reported.any():
        return None
    counts = np.where(reported, np.bincount(peers[reported], minlength=peers.max() + 1)[peers], 0)
    rank = int(counts.argmax())
    return rank if counts[rank] >= FEWEST else None
