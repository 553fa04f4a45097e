"""Tests of the rows about jobs in which few ranks do the same work."""

from __future__ import annotations

from e2e.bench.guard import detectors
from e2e.bench.guard.small_jobs import (
    HEALTHY,
    LAYOUTS,
    ONSET,
    SLOW,
    SmallJobOutcome,
    add_rows,
    play_job,
)

from convoy_workloads.bench.figures import Figures

PLAIN, CALM = next(iter(SLOW)), next(iter(HEALTHY))
RULES = ("", *detectors.OTHERS)


def outcome(case: str, first: dict[int, int], layout: str = "2x2") -> SmallJobOutcome:
    return SmallJobOutcome(layout, case, 1, dict.fromkeys(RULES, first))


def test_only_the_slow_rank_counts_as_named_and_only_after_its_onset() -> None:
    assert outcome(PLAIN, {1: ONSET + 2}).delay("") == 3
    assert outcome(PLAIN, {1: ONSET - 1}).delay("") is None
    assert outcome(PLAIN, {0: ONSET}).delay("") is None
    assert outcome(PLAIN, {1: ONSET, 0: ONSET}).wrong("") == 1
    assert outcome(PLAIN, {1: ONSET - 1}).wrong("") == 1
    assert outcome(CALM, {1: ONSET}).wrong("") == 1


def test_rows_meet_or_miss_their_targets() -> None:
    for late, wrong, met in ((3, 0, True), (12, 2, False)):
        figures = Figures()
        found = [outcome(PLAIN, {1: ONSET + late}, layout) for layout in LAYOUTS]
        found += [outcome(CALM, dict.fromkeys(range(wrong), 9), layout) for layout in LAYOUTS]
        add_rows(found, figures)
        rows = {row["metric"]: row for row in figures.rows()}
        for layout in LAYOUTS:
            assert rows[f"{layout}, {PLAIN}: named within 10 steps"]["met"] is met
            assert rows[f"{layout}, {CALM}: ranks named"]["met"] is met
            assert rows[f"{layout}, no slow rank: ranks named"]["met"] is met
            assert rows[f"{layout}, no slow rank: ranks named, z > 3"]["value"] == wrong


def test_a_slow_rank_of_two_replicas_is_named_in_a_played_job() -> None:
    found = play_job("dp 2", PLAIN, 0)
    assert found.delay("") is not None and found.wrong("") == 0
    assert found.delay("2 x median") is None, "20 % is far from twice the median"
