"""Tests of the rows about the study of learned controllers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from e2e.bench.experiments.study import Spent, add_rows

from convoy_workloads.bench.figures import Figures
from convoy_workloads.engines.orchestration.arms import LAG
from convoy_workloads.engines.orchestration.claim_rules import ClaimAnswer


def document(answers: Mapping[str, ClaimAnswer]) -> dict[str, Any]:
    interval = {"value": 4.0, "low": 3.0, "high": 5.0}
    return {
        "runs": 7,
        "experiments": {
            "e": {
                "controls": [{"passed": True}, {"passed": True}],
                "hypotheses": [{"verdict": "Supported"}, {"verdict": None}],
            }
        },
        "claims": [
            {"name": name, "answer": answer.value, "reason": "the figures"}
            for name, answer in answers.items()
        ],
        "lagAdvantage": [
            {
                "figure": "latePercent",
                "lag": lag,
                "advantage": {"own": interval},
                "shareLeft": {"tuned": None},
            }
            for lag in (30.0, LAG)
        ],
    }


def rows(
    answers: Mapping[str, ClaimAnswer] | None = None, seconds: float = 900.0
) -> dict[str, dict[str, Any]]:
    found = Figures()
    add_rows(found, document(answers or {"reversals": ClaimAnswer.SEEN}), Spent(seconds, 2 * seconds))
    return {one["metric"].rpartition(": ")[2]: one for one in found.rows()}


def test_a_slow_study_misses_its_target() -> None:
    for row in ("time of the study", "processor time of the study"):
        assert rows(seconds=1100.0)[row]["met"]
        assert not rows(seconds=1300.0)[row]["met"]


def test_all_claims_but_one_must_be_answered_and_our_own_addition_does_not_count() -> None:
    answers = {
        "reversals": ClaimAnswer.SEEN,
        "lag": ClaimAnswer.NOT_SEEN,
        "artefact": ClaimAnswer.NOT_DECIDABLE,
        "untuned": ClaimAnswer.UNDECIDED,
    }
    found = rows(answers)["claims of the abstract that are answered"]
    assert (found["value"], found["met"]) == (0.667, True)
    answers["lag"] = ClaimAnswer.UNDECIDED
    found = rows(answers)["claims of the abstract that are answered"]
    assert (found["value"], found["met"]) == (0.333, False)


def test_a_claim_without_an_answer_has_no_value() -> None:
    found = rows({"reversals": ClaimAnswer.UNDECIDED, "lag": ClaimAnswer.NOT_SEEN, "mode": ClaimAnswer.SEEN})
    assert found["reversals"]["value"] is None
    assert found["reversals"]["kind"] == "not measured: undecided: the figures"
    assert (found["lag"]["value"], found["mode"]["value"]) == (0.0, 1.0)


def test_the_lag_rows_are_those_of_the_registered_lag() -> None:
    found = [name for name in rows() if "advantage" in name]
    assert found == ["advantage over the comparator own", "share of the advantage that is left against tuned"]
    assert rows()["advantage over the comparator own"]["spread"] == "interval 3 to 5"
