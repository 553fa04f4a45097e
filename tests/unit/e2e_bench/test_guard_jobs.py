"""Tests of rows about synthetic jobs, and of differences between detection rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from e2e.bench.guard.detectors import OTHERS, Detector
from e2e.bench.guard.job_outcomes import UNCONFIRMED, Accused, JobOutcome, play_job
from e2e.bench.guard.jobs import add_rows

from convoy_controllers.guard.faults import Fault
from convoy_controllers.guard.synthetic import Job, play
from convoy_workloads.bench.figures import Figures

GOOD = JobOutcome(
    scenario="half as fast",
    seed=10,
    ranks=64,
    guilty=1,
    node_hours=20_000.0,
    cause_right=True,
    first_right=True,
    delay=4.0,
    lasting=Accused(1, 0),
    others={"": Accused(1, 0), "z > 3": Accused(1, 3)},
)
BAD = JobOutcome("slow", 11, 2048, 1, 1.0, False, False, None, Accused(0, 2), {})
COMPARED = "computing slowly or nobody's fault"


def row_values(*outcomes: JobOutcome) -> dict[str, tuple[object, object]]:
    figures = Figures()
    add_rows(outcomes, figures)
    return {row["metric"]: (row["value"], row["met"]) for row in figures.rows()}


def test_rows_of_correct_outcomes_meet_their_targets() -> None:
    rows = row_values(*[GOOD] * 10)
    assert rows.pop("from the fault to the first word on a culprit: p90") == (4.0, True)
    assert rows.pop("healthy nodes that ever had a lasting verdict") == (0, None)
    assert rows.pop("false verdicts, upper bound") == (1.5e-05, True)
    assert rows[f"{COMPARED}, z > 3: accused nodes that have culprits"] == (0.25, None)
    assert rows[f"{COMPARED}, Convoy: accused nodes that have culprits"] == (1, None)
    assert rows[f"{COMPARED}, Convoy: of those with a culprit half as fast"] == (1, None)
    assert {met for _, met in rows.values()} == {True, None}


def test_rows_of_half_wrong_outcomes_miss_their_targets() -> None:
    rows = row_values(GOOD, BAD)
    assert rows["jobs with the right cause and no other"] == (0.5, False)
    assert rows["jobs whose first accused are culprits"] == (0.5, False)
    assert rows["nodes with a lasting verdict that have culprits"] == (0.333, False)
    assert rows["nodes of culprits with a lasting verdict"] == (0.5, False)
    assert rows["jobs of 1,024 to 4,096 ranks: the right cause and no other"] == (0, None)
    assert rows["from the fault to the first word on a culprit: p90"] == (None, False), "never named"
    assert rows["false verdicts, upper bound"][1] is False


def test_an_empty_share_misses_its_target() -> None:
    rows = row_values(replace(GOOD, lasting=Accused(0, 0)))
    assert rows["nodes with a lasting verdict that have culprits"] == (None, False)
    assert row_values(replace(GOOD, guilty=0))["nodes of culprits with a lasting verdict"] == (None, False)


def test_a_burst_leads_to_no_lasting_verdict() -> None:
    outcome = play_job("bursts", 0)
    assert (outcome.lasting, outcome.guilty) == (Accused(0, 0), 0)
    assert outcome.others[UNCONFIRMED] == Accused(0, 1), "a rule without persistence accuses the node"


def test_other_rules_accuse_healthy_nodes_of_uneven_stages() -> None:
    outcome = play_job("calm", 0)
    assert outcome.others[""] == Accused(0, 0)
    assert outcome.others["10 % margin"].healthy > 0


@pytest.mark.parametrize("lost", [0.0, 0.05])
@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_every_rule_names_a_rank_that_is_three_times_as_slow(
    make: Callable[[], Detector], lost: float
) -> None:
    faults = [Fault("slow", (5,), 2.0, 1), Fault("lost telemetry", (), lost)]
    detector, accused = make(), set[int]()
    for table in play(Job(stages=1, replicas=16, work=0.0), faults, 20, 1):
        accused |= detector(table)
    assert 5 in accused


@pytest.mark.parametrize(("scenario", "seed"), [("slow", 2), ("half as fast", 11), ("nic", 12)])
def test_delays_are_counted_from_the_onset(scenario: str, seed: int) -> None:
    outcome = play_job(scenario, seed)
    assert outcome.first_right and outcome.delay is not None and 1 <= outcome.delay <= 15
