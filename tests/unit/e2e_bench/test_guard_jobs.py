"""What is told of synthetic jobs, and that rules differ where they should."""

from __future__ import annotations

import pytest
from e2e.bench.figures import Figures
from e2e.bench.guard.jobs import tell
from e2e.bench.guard.lives import UNCONFIRMED, Accused, Life, live

GOOD = Life(
    scenario="slow",
    seed=10,
    ranks=64,
    culprits=1,
    node_hours=20_000.0,
    cause_right=True,
    first_right=True,
    delay=4.0,
    acted=Accused(1, 0),
    others={"": Accused(1, 0), "z > 3": Accused(1, 3)},
)
BAD = Life("slow", 11, 2048, 1, 1.0, False, False, None, Accused(0, 2), {})


def told(*lives: Life) -> dict[str, tuple[object, object]]:
    figures = Figures()
    tell(lives, figures)
    return {row["metric"]: (row["value"], row["met"]) for row in figures.rows()}


def test_jobs_in_which_all_is_right() -> None:
    rows = told(*[GOOD] * 10)
    assert rows.pop("from the fault to the first word on a culprit: p90") == (4.0, True)
    assert rows.pop("healthy nodes that were ever to be acted on") == (0, None)
    assert rows.pop("false verdicts, upper bound") == (1.5e-05, True)
    assert rows["computing slowly or nobody's fault, z > 3: verdicts acted on that are right"] == (0.25, None)
    assert rows["computing slowly or nobody's fault, Convoy: verdicts acted on that are right"] == (1, None)
    assert {met for _, met in rows.values()} == {True, None}


def test_jobs_in_which_half_is_wrong() -> None:
    rows = told(GOOD, BAD)
    assert rows["jobs with the right cause and no other"] == (0.5, False)
    assert rows["jobs whose first accused are culprits"] == (0.5, False)
    assert rows["verdicts acted on that are right"] == (pytest.approx(1 / 3, abs=0.001), False)
    assert rows["culprits acted on"] == (0.5, False)
    assert rows["jobs of 1,024 to 4,096 ranks: the right cause and no other"] == (0, None)
    assert rows["from the fault to the first word on a culprit: p90"] == (None, False), "never named"
    assert rows["false verdicts, upper bound"][1] is False


def test_a_burst_is_told_and_nothing_is_to_be_done_about_it() -> None:
    life = live("bursts", 0)
    assert (life.acted, life.culprits) == (Accused(0, 0), 0)
    assert life.others[UNCONFIRMED] == Accused(0, 1), "who acts at once acts on it"


def test_what_others_accuse_in_a_job_of_uneven_stages_and_work() -> None:
    life = live("calm", 0)
    assert life.others[""] == Accused(0, 0)
    assert life.others["10 % margin"].healthy > 0
