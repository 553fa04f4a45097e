"""Tests of the layout that a job's ranks report: from a rank's message to the finding about the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.operator.telemetry_hub import Hub

from convoy_agents.guard.windows import parse
from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.guard.faults import Fault
from convoy_controllers.guard.synthetic import Job, play
from convoy_controllers.guard.telemetry import Table
from convoy_controllers.views import GuardView, SlowView
from convoy_crds.trainingjob_straggler import Proof
from convoy_workloads.runtime.telemetry.position import Position
from convoy_workloads.runtime.telemetry.step_recorder import StepRecorder

STAGES, REPLICAS, ONSET = 4, 2, 25
PIPELINES = Job(stages=STAGES, replicas=REPLICAS, per_node=1, groups=False, last_stage=1.3)
TIMES = ("wall", "compute", "optimizer", "data", "wait", "save")


def position(rank: int) -> Position:
    return Position(*divmod(rank, REPLICAS))


class Rank:
    """A rank that spends its time as a table says, and measures it with a real recorder."""

    def __init__(self, number: int, send: Callable[[dict[str, Any]], None]) -> None:
        self.number, self._now = number, 0.0
        self.recorder = StepRecorder(lambda: self._now)
        self.recorder.send = send
        self.recorder.step(0)

    def step(self, table: Table) -> None:
        spent = {kind: float(getattr(table, kind)[self.number]) for kind in TIMES}
        for kind in TIMES[2:]:
            self.recorder.spend(kind, spent[kind])
        self._now += spent["compute"] + sum(spent[kind] for kind in TIMES[2:])
        self.recorder.step(table.first)


def findings(
    reports: Callable[[int, int], Position | None], windows: int = 20, *faults: Fault
) -> tuple[SlowView, ...]:
    """Return the findings about a job with two replicas of four stages, of which the last takes longer.

    `reports`: returns the position that a rank, the first argument, reports in a step, the second.
    """
    return view(reports, windows, *faults).slow


def view(
    reports: Callable[[int, int], Position | None], windows: int, *faults: Fault, exchanges: bool = False
) -> GuardView:
    """Return the view of the job. `exchanges`: True if its ranks send to single ranks in each step."""
    hub, sent = Hub(STAGES * REPLICAS), list[dict[str, Any]]()
    ranks = [Rank(number, sent.append) for number in range(hub.replicas)]
    for table in play(PIPELINES, faults, windows, 3):
        hub.now += 1
        for rank in ranks:
            rank.recorder.position = reports(rank.number, table.first)
            if exchanges:
                rank.recorder.exchanged()
            rank.step(table)
            parsed = parse({"windows": sent}, rank.number)
            sent.clear()
            telemetry = wire.PodTelemetry(pod_uid=f"p{rank.number}", incarnation=1, windows=parsed)
            hub.detectors.record(f"n{rank.number}", telemetry)
    found = hub.detectors.view("uid-job")
    assert isinstance(found, GuardView)
    return found


def test_slow_rank_of_a_reported_pipeline_is_named_as_a_suspect() -> None:
    slow = 5
    (found,) = findings(lambda rank, _: position(rank), 46, Fault("slow", (slow,), 0.2, ONSET))
    assert (found.cause, found.ranks, found.nodes) == ("Compute", (slow,), (f"n{slow}",))
    assert found.proof is Proof.FEW_PEERS and found.persistent


def test_long_stage_of_a_reported_pipeline_accuses_no_rank() -> None:
    assert [one for one in findings(lambda rank, _: position(rank)) if one.ranks] == []


def test_without_a_layout_the_ranks_of_a_long_stage_are_blamed() -> None:
    """All ranks of a role count as peers, so the program must report its stages."""
    blamed = {rank for one in findings(lambda *_: None) for rank in one.ranks}
    assert blamed == {6, 7}


@pytest.mark.parametrize(
    "reports",
    [
        pytest.param(lambda rank, step: position(rank) if step > 8 else None, id="late"),
        pytest.param(lambda rank, step: position(rank if step < 9 else 0), id="changed later"),
    ],
)
def test_first_layout_that_all_ranks_report_counts(reports: Callable[[int, int], Position | None]) -> None:
    (found,) = findings(reports, 36, Fault("slow", (5,), 0.2, ONSET))
    assert (found.ranks, found.proof) == ((5,), Proof.FEW_PEERS)


def test_layout_that_a_rank_does_not_report_is_ignored() -> None:
    found = findings(lambda rank, _: position(rank) if rank else None)
    assert {rank for one in found for rank in one.ranks} == {6, 7}


def test_pipeline_without_a_layout_compares_no_ranks() -> None:
    found = view(lambda *_: None, 20, exchanges=True)
    assert found.layout_unknown and not found.enough_peers
    assert [one for one in found.slow if one.ranks] == []


def test_pipeline_that_reports_its_layout_late_is_compared() -> None:
    late = view(
        lambda rank, step: position(rank) if step > 4 else None,
        40,
        Fault("slow", (5,), 0.2, ONSET),
        exchanges=True,
    )
    assert not late.layout_unknown
    assert {(one.ranks, one.proof) for one in late.slow} == {((5,), Proof.FEW_PEERS)}
