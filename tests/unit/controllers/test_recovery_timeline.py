"""Tests of the phases of a recovery, from given moments and from recoveries of a simulated job."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from convoy_controllers.testing.builders import NOW, ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.losses import Loss, lost
from convoy_controllers.trainingjob.timeline import (
    Placing,
    Timeline,
    durations,
    merge_reports,
    record_placing,
    start,
)
from convoy_controllers.views import RankView, SlotView
from convoy_crds.trainingjob_status import CheckpointStatus, Progress, TrainingJobStatus

IN_PLACE = Timeline(2, decided=100.0, fault_at=99.5, since=99.5, started=100.25, stepped=101.0)


def durations_with(**moments: float) -> dict[str, float]:
    return {phase.value: seconds for phase, seconds in durations(replace(IN_PLACE, **moments)).items()}


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        ({}, {"detect": 0.5, "start": 0.25, "first_step": 0.75, "total": 1.5}),
        ({"started": 0.0, "stepped": 0.0}, {"detect": 0.5}),
        ({"stepped": 0.0}, {"detect": 0.5, "start": 0.25}),
        # The time of the fault is not known, so the recovery starts with the decision.
        ({"fault_at": 0.0, "since": 100.0}, {"start": 0.25, "first_step": 0.75, "total": 1.0}),
        ({"restore": 0.5}, {"detect": 0.5, "start": 0.25, "restore": 0.5, "first_step": 0.25, "total": 1.5}),
        # The launcher did not report the start of its ranks, so the start of the phase `first_step` is not
        # known.
        ({"started": 0.0}, {"detect": 0.5, "total": 1.5}),
        (
            {"created": 102.0, "bound": 102.5, "started": 104.0, "stepped": 105.0},
            {"detect": 0.5, "fence": 2.0, "schedule": 0.5, "start": 1.5, "first_step": 1.0, "total": 5.5},
        ),
        (
            {"not_before": 101.0, "created": 102.0, "bound": 102.5, "started": 104.0, "stepped": 105.0},
            {"detect": 0.5, "back_off": 1.0, "fence": 1.0, "schedule": 0.5, "start": 1.5, "first_step": 1.0,
             "total": 5.5},
        ),
        (
            {"not_before": 101.0, "started": 102.0, "stepped": 105.0},
            {"detect": 0.5, "back_off": 1.0, "start": 1.0, "first_step": 3.0, "total": 5.5},
        ),
        # The back-off has not ended yet, so it has no duration.
        ({"not_before": 101.0, "started": 0.0, "stepped": 0.0}, {"detect": 0.5}),
        # The operator never saw the node of a replacement pod, so the phases `schedule` and `start` are not
        # known.
        (
            {"created": 102.0, "started": 104.0, "stepped": 105.0},
            {"detect": 0.5, "fence": 2.0, "first_step": 1.0, "total": 5.5},
        ),
        # Two clocks differ, so the phases with a negative duration are left out.
        ({"fault_at": 100.1, "since": 100.0}, {"start": 0.25, "first_step": 0.75, "total": 1.0}),
        ({"started": 99.9}, {"detect": 0.5, "first_step": 1.1, "total": 1.5}),
        ({"stepped": 99.0}, {"detect": 0.5, "start": 0.25}),
    ],
)  # fmt: skip
def test_lengths_of_recovery_phases(moments: dict[str, float], expected: dict[str, float]) -> None:
    found = durations_with(**moments)
    assert found == pytest.approx(expected)
    parts = sum(seconds for phase, seconds in found.items() if phase != "total")
    if {"detect", "start", "first_step", "total"} <= found.keys():
        assert parts == pytest.approx(found["total"]), "all of it is accounted for"


def test_second_fault_before_the_first_step_keeps_the_first_fault_time() -> None:
    first = start(None, incarnation=2, decided=100.0, fault_at=99.0, not_before=0.0)
    second = start(first, incarnation=3, decided=105.0, fault_at=99.2, not_before=106.0)
    assert (second.since, second.fault_at, second.incarnation) == (99.0, 99.2, 3)
    earlier = start(first, incarnation=3, decided=105.0, fault_at=98.0, not_before=0.0)
    assert earlier.since == 98.0, "a node's loss is known after its echo"
    unknown = start(None, incarnation=2, decided=100.0, fault_at=0.0, not_before=0.0)
    assert (unknown.since, durations(unknown)) == (100.0, {})


def rank(number: int, **facts: Any) -> RankView:
    return RankView(number, "RUNNING", **facts)


def test_reports_of_ranks_are_merged_when_all_ranks_run() -> None:
    line = start(None, incarnation=3, decided=100.0, fault_at=99.0, not_before=0.0)
    made = record_placing(None, on_node=False, now=101.0)
    made = record_placing(made, on_node=True, now=102.0)
    assert record_placing(made, on_node=True, now=109.0) == Placing(101.0, 102.0)
    placings = {"u1": made, "elsewhere": Placing(150.0, 160.0)}
    old = {uid: SlotView(uid, "n", True, 2, ranks=(rank(0, started=1.0, first_step=2.0),)) for uid in "ab"}
    assert merge_reports(line, 2, True, old, {}) is line, "the incarnation before"
    views = {
        "u0": SlotView("u0", "n", True, 3, ranks=(rank(0, started=103.0),)),
        "u1": SlotView("u1", "n", True, 3, ranks=(rank(1, started=104.0),)),
        "elsewhere": SlotView("elsewhere", "n", True, 0),
    }
    assert merge_reports(line, 3, False, views, placings) == line
    up = merge_reports(line, 3, True, views, placings)
    assert (up.created, up.bound, up.started, up.stepped) == (101.0, 102.0, 104.0, 0.0)
    views["u0"] = replace(views["u0"], ranks=(rank(0, started=103.0, first_step=106.0, restore_seconds=0.5),))
    over = merge_reports(up, 3, True, views, placings)
    assert (over.stepped, over.restore) == (106.0, 0.5)
    # The first observation comes late, after the first step, and one rank's report of this step has not
    # arrived yet.
    late = {uid: replace(views[uid], incarnation=4) for uid in ("u0", "u1")}
    assert merge_reports(line, 4, False, late, placings) == over


def fault_times(cluster: ToyCluster) -> list[float]:
    return [made.fault_at - NOW.timestamp() for made in cluster.plans if made.fault_at]


def test_plan_that_handles_a_fault_contains_the_fault_time() -> None:
    cluster = ToyCluster(make_job(), make_engine()).settle().wait(3).train(1).settle().wait(10)
    cluster.exit(1, 137, signal=9, ended=cluster.now.timestamp()).wait(2).settle()
    assert fault_times(cluster) == [13.0]
    cluster.wait(5).train(1).settle().wait(30)
    cluster.exit(0, 1, ended=cluster.now.timestamp()).settle()
    assert fault_times(cluster) == [13.0, 50.0]
    cluster.wait(60).train(1).settle().wait(30).lose("job-worker-0").settle()
    assert len(fault_times(cluster)) == 2, "nobody knows when a pod vanished"


STEP_40 = {"progress": Progress(step=40)}
SAVED_30 = {"checkpoint": CheckpointStatus(incarnation=1, step=30, tier="local", time=NOW)}


@pytest.mark.parametrize(
    ("status", "saves", "expected"),
    [
        ({**STEP_40, **SAVED_30}, True, Loss(10, 12.5)),
        ({**STEP_40, **SAVED_30}, False, Loss()),
        (STEP_40, True, Loss(40)),
        (SAVED_30, True, Loss()),
        ({"progress": Progress(step=29), **SAVED_30}, True, Loss(0, 12.5)),
    ],
)
def test_lost_work_of_a_restart(status: dict[str, Any], saves: bool, expected: Loss) -> None:
    assert lost(TrainingJobStatus(**status), saves, NOW + timedelta(seconds=12.5)) == expected
