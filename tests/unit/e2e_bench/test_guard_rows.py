"""Tests of rows about fleets with slow machines and about storms."""

from __future__ import annotations

import pytest
from e2e.bench.guard import fleet, storm
from e2e.bench.guard.fleet import ArmResult
from e2e.bench.guard.intervals import count_with_bound, mean_interval, poisson_upper_bound
from e2e.bench.guard.storm import Storm

from convoy_workloads.bench.figures import Figures

STEADY, UNSTEADY = (1.0, 1.005) * 8, (1.0, 2.0) * 8


def rows(figures: Figures) -> dict[str, tuple[object, object]]:
    return {row["metric"]: (row["value"], row["met"]) for row in figures.rows()}


@pytest.mark.parametrize(
    ("walls", "pace", "wrong", "met"),
    [(STEADY, 30.0, 0, (True, True, True)), (UNSTEADY, 14.0, 1, (False, False, False))],
)
def test_rows_of_a_bad_fleet_meet_or_miss_their_targets(
    walls: tuple[float, ...], pace: float, wrong: int, met: tuple[bool, ...]
) -> None:
    figures = Figures()
    found = {arm: [ArmResult(UNSTEADY, 10.0, 0)] * 3 for arm in fleet.ARMS}
    found[fleet.NO_FAULTS] = [ArmResult(STEADY, 30.0, 0)] * 3
    fleet.add_rows({**found, "Convoy": [ArmResult(walls, pace, wrong)] * 3}, figures)
    found = rows(figures)
    assert found["bad fleet, Convoy: throughput against no guard"] == (pace / 10, met[0])
    assert found["bad fleet, Convoy: steps of one run to another's"][1] is met[1]
    assert found["bad fleet, Convoy: healthy nodes taken out of service"] == (wrong, met[2])
    assert found["bad fleet, Convoy: of what bad machines cost, won back"] == ((pace - 10) / 20, None)
    assert found["bad fleet, no guard: steps of one run to another's"][1] is None
    (row,) = [row for row in figures.rows() if row["metric"].startswith("bad fleet, Convoy: steps")]
    assert row["baseline"] == pytest.approx(0.356, abs=0.001)


@pytest.mark.parametrize("bad", [False, True])
def test_rows_of_storms_are_computed(bad: bool) -> None:
    figures, one = Figures(), int(bad)
    storm.add_rows(
        [
            Storm("slow half", drains=one, accused_by_nvrx=8),
            Storm("false accusations", one, 2, one, "a promise" * one, one, opened=not bad),
            Storm("crashes", 0, 1, one, "", one),
        ],
        figures,
    )
    found = rows(figures)
    assert found.pop("storm: half of a job slow at once, nodes that min-reference 0.75 accuses") == (8, None)
    assert len(found) == 6
    assert {met for _, met in found.values()} == {not bad}


def test_confidence_intervals_are_computed() -> None:
    assert mean_interval([1.0, 2.0, 3.0]) == "95 % interval -0.483 to 4.48, 3 seeds"
    assert mean_interval([1.0]) == "n=1"
    assert count_with_bound(0, 60) == "0 of 60; at most 0.0499 each with 95 %"
    assert [round(poisson_upper_bound(count), 3) for count in (0, 1, 2, 10)] == [2.996, 4.744, 6.296, 16.962]
