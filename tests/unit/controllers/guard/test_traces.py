"""Tests of the detector on public traces: it names only the slowed rank, within four steps, and reports
imbalance as imbalance.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.findings import Cause, Report, Verdict
from convoy_controllers.guard.state import State, initial_state
from convoy_controllers.testing.traces import Trace, read

FOLDER = Path(__file__).parents[3] / "data" / "straggler"
ONSET = 20


@cache
def trace(name: str) -> Trace:
    """Return the trace AR with the slowness of its slow worker removed, or the trace SE as it is."""
    found = read(FOLDER / f"{name}.npz")
    return found.without_slowness(0, 0) if name == "AR" else found


def played(one: Trace) -> list[Report]:
    state, reports = initial_state(one.layout), []
    for table in one.tables():
        state, report = advance(state, table)
        reports.append(report)
    return reports


@cache
def before(name: str) -> State:
    """Return the detector's state before the slowness starts."""
    state = initial_state(trace(name).layout)
    for table in trace(name).tables()[:ONSET]:
        state, report = advance(state, table)
        assert not [finding for finding in report.findings if finding.ranks]
    return state


def accused(reports: list[Report]) -> set[int]:
    return {rank for report in reports for finding in report.findings for rank in finding.ranks}


def test_only_the_slow_worker_is_named_within_four_steps() -> None:
    one = read(FOLDER / "AR.npz")
    reports = played(one)
    culprit = one.rank(0, 0)
    assert accused(reports[:4]) == accused(reports) == {culprit}
    (finding,) = reports[-1].findings
    assert finding.cause is Cause.COMPUTE and finding.persistent and finding.place == "rank"
    assert finding.slowdown == pytest.approx(1.36, abs=0.15)
    verdicts = reports[-1].verdicts
    assert verdicts[culprit] == Verdict.PERSISTENT
    assert (np.delete(verdicts, culprit) == Verdict.VICTIM).all()
    # The publishers of the trace state that a repair of the slow worker recovers the whole loss. So most of
    # the loss must be attributed to the named rank, and hardly any to stages or replicas.
    shares = reports[-1].shares
    assert shares.named > 0.5 and shares.stages < 0.05 and shares.replicas < 0.05


def test_longer_sequences_are_imbalance_and_name_no_rank() -> None:
    reports = played(trace("SE"))
    assert accused(reports) == set()
    causes = {finding.cause for report in reports for finding in report.findings}
    assert causes == {Cause.IMBALANCE}
    assert {finding.place for finding in reports[3].findings} >= {"replicas"}
    assert all(report.model == "cells" and report.sigma < 0.01 for report in reports[4:])


@pytest.mark.parametrize(
    ("name", "stage", "replica"),
    [("AR", 0, 0), ("AR", 1, 3), ("AR", 2, 1), ("AR", 3, 2), ("SE", 0, 0), ("SE", 0, 19), ("SE", 1, 7)],
)
def test_ten_percent_slowdown_is_named_within_four_steps(name: str, stage: int, replica: int) -> None:
    one = trace(name).slowed(stage, replica, 1.1, ONSET)
    state, reports = before(name), []
    for table in one.tables()[ONSET : ONSET + 4]:
        state, report = advance(state, table)
        reports.append(report)
    assert accused(reports) == {one.rank(stage, replica)}


def test_a_table_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="64 ranks, but the job has 16"):
        advance(initial_state(trace("AR").layout), trace("SE").tables()[0])
