"""Tests of the analysis: verdicts, controls, collapsed comparators, failures and deviations."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.workloads.experiments.plans import PREDICTION, arm, blocks, noise, outcome, plan, shifted

from convoy_crds.experiment_data import DataMismatch
from convoy_crds.experiment_schedule import Block
from convoy_crds.experiment_status import Verdict
from convoy_workloads.experiments.analysis import analyse
from convoy_workloads.experiments.compact import MAX_BYTES, compact
from convoy_workloads.experiments.result import HypothesisResult, Result

ARMS = [arm("ours", "Candidate"), arm("theirs", "Comparator")]
LAG = [{"name": "lag", "kind": "ObservationLag", "magnitudes": [10, 60]}]


def run(values: Any, tuning: Any = (), **changes: Any) -> Result:
    document = plan(**changes)
    return analyse(document, blocks(document, values), tuning)


def only(result: Result) -> HypothesisResult:
    (found,) = result.hypotheses
    return found


@pytest.mark.parametrize(
    ("direction", "margin", "shift", "verdict"),
    [
        ("Better", 0, 3, "Supported"),
        ("Better", 0, 0, "Undecided"),
        ("Better", 0, -3, "Contradicted"),
        ("Better", 1, 3, "Supported"),
        ("Better", 6, 3, "Contradicted"),
        ("Worse", 0, -3, "Supported"),
        ("Worse", 1, -3, "Supported"),
        ("Worse", 6, -3, "Contradicted"),
        ("Worse", 0, 3, "Contradicted"),
        ("NotWorse", 3, 0, "Supported"),
        ("NotWorse", 3, 3, "Supported"),
        ("NotWorse", 1, -6, "Contradicted"),
        ("NotWorse", 0, 0, "Undecided"),
    ],
)
def test_the_verdict_on_each_direction(direction: str, margin: float, shift: float, verdict: str) -> None:
    prediction = {**PREDICTION, "direction": direction, "margin": margin}
    found = only(run(shifted(shift), predictions=[prediction]))
    assert found.verdict == verdict, found
    assert found.effect == pytest.approx(shift, abs=1.2)


def test_an_undecided_verdict_says_which_effect_would_have_been_found() -> None:
    found = only(run(shifted(0)))
    assert found.minimum_effect is not None and 0.8 < found.minimum_effect < 3
    assert found.reason == (
        f"the data show neither; a difference of {found.minimum_effect:.3g} s from the threshold would "
        "probably have been found"
    )


def test_too_few_blocks_for_the_family_say_so() -> None:
    found = only(run(shifted(3), blocks=3))
    assert (found.verdict, found.minimum_effect) == ("Undecided", None)
    assert "3 blocks allow no p-value that is small enough" in found.reason


def test_a_degradation_is_the_change_from_the_unperturbed_run() -> None:
    prediction = {**PREDICTION, "perturbation": "lag", "contrast": "Degradation"}

    def values(block: Block, label: str, name: str) -> float:
        slower = (block.cell.magnitude or 0) * (0.02 if label == "ours" else 0.1)
        return 10 + noise(block, label, block.cell, spread=0.1) + slower + (5 if label == "ours" else 0)

    found = run(values, perturbations=LAG, predictions=[prediction]).hypotheses
    assert [(one.magnitude_index, one.verdict) for one in found] == [(0, "Supported"), (1, "Supported")]
    assert [one.effect for one in found] == [pytest.approx(0.8, abs=0.2), pytest.approx(4.8, abs=0.2)]
    assert found[0].reason.endswith("in the degradation of seconds")
    assert found[0].ratio is None


def test_adding_a_constant_to_both_arms_changes_no_verdict() -> None:
    base = only(run(shifted(2)))
    moved = only(run(lambda block, label, name: 1000 + (shifted(2)(block, label, name) or 0)))
    assert moved.p == base.p
    assert moved.effect == pytest.approx(base.effect)


def test_swapped_arms_have_the_opposite_effect() -> None:
    prediction = {**PREDICTION, "candidate": "theirs", "comparator": "ours"}
    base, swapped = only(run(shifted(2))), only(run(shifted(2), predictions=[prediction]))
    assert (swapped.effect, swapped.p) == (pytest.approx(-(base.effect or 0)), base.p)
    assert (base.verdict, swapped.verdict) == ("Supported", "Contradicted")


def test_the_order_in_which_blocks_ended_changes_nothing() -> None:
    document = plan()
    rows = blocks(document, shifted(1))
    assert analyse(document, rows).document() == analyse(document, rows[::-1]).document()


def test_p_values_are_corrected_over_all_predictions_and_magnitudes() -> None:
    predictions = [{**PREDICTION, "perturbation": "lag"}, {**PREDICTION, "name": "alone"}]
    found = run(shifted(3), perturbations=LAG, predictions=predictions).hypotheses
    assert [one.p for one in found] == [pytest.approx(3 * one.raw_p) for one in found]


def test_failed_runs_are_shown_and_their_worst_case_is_computed() -> None:
    def values(block: Block, label: str, name: str) -> float | None:
        return None if block.repetition in {2, 3} and label == "ours" else shifted(3)(block, label, name)

    result = run(values)
    found = only(result)
    assert (found.blocks, found.failed, found.verdict) == (8, [2, 3], "Supported")
    assert found.sensitivity == "the 2 failed pairs could change the verdict to Undecided"
    assert [(one.block, one.arm) for one in result.failures] == [(2, "ours"), (3, "ours")]
    assert result.blocks.failed == 2
    assert (
        "could not change"
        in only(
            run(
                lambda block, label, name: None if block.id == 0 else shifted(3)(block, label, name),
                blocks=14,
            )
        ).sensitivity
    )


def test_an_experiment_whose_runs_all_failed_decides_nothing() -> None:
    found = only(run(lambda block, label, name: None))
    assert (found.verdict, found.effect, found.p, found.blocks) == ("Undecided", None, 1, 0)
    assert found.reason == "no block has a value of both arms"


def test_two_blocks_decide_nothing_and_one_has_no_interval() -> None:
    two = only(run(shifted(3), blocks=2))
    assert (two.verdict, two.p) == ("Undecided", 1 / 2)
    document = plan(blocks=2)
    one = only(analyse(document, blocks(document, shifted(3))[:1]))
    assert (one.verdict, one.low, one.blocks) == ("Undecided", None, 1)
    assert one.reason == "one pair has no spread, so nothing can be concluded"


def test_equal_arms_and_constant_differences_have_exact_answers() -> None:
    tied = only(run(lambda block, label, name: 7.0))
    assert (tied.verdict, tied.effect, tied.p, tied.standardised) == ("Undecided", 0, 1, None)
    constant = only(run(lambda block, label, name: 5.1 if label == "ours" else 7.3))
    assert (constant.verdict, constant.low, constant.high) == ("Supported", constant.effect, constant.effect)


def test_what_rounding_leaves_of_equal_arms_is_no_difference() -> None:
    found = only(run(lambda block, label, name: 0.1 + 0.2 if label == "ours" else 0.3))
    assert found.differences == [0] * 10


def test_censored_runs_count_with_their_limit() -> None:
    document = plan()
    rows = blocks(document, lambda block, label, name: 60.0 if block.repetition < 3 else 40.0)
    for row in rows[:3]:
        for figure in row["figures"]:
            figure["censored"] = figure["arm"] == "theirs"
    found = only(analyse(document, rows))
    assert (found.censored_candidate, found.censored_comparator, found.blocks) == (0, 3, 10)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 1.7e308])
def test_a_value_that_is_no_usable_number_is_a_failed_pair(value: float) -> None:
    document = plan()
    rows = blocks(document, shifted(3))
    rows[4]["figures"][0]["value"] = value
    found = only(analyse(document, rows))
    assert (found.blocks, found.failed) == (9, [4])


@pytest.mark.parametrize("role", ["comparator", "naive"])
def test_a_comparator_that_is_worse_than_the_naive_arm_has_collapsed(role: str) -> None:
    def values(block: Block, label: str, name: str) -> float:
        return (
            10 + noise(block, label) + (9 if label == ("theirs" if role == "comparator" else "naive") else 0)
        )

    found = only(run(values, arms=[*ARMS, arm("naive", "Naive")]))
    if role == "naive":
        assert found.verdict == "Undecided"
    else:
        assert found.verdict == "ComparatorCollapsed"
        assert found.reason.startswith("theirs is worse than the naive arm naive in seconds: p = 0.0")


def test_a_comparator_outside_its_limits_has_collapsed() -> None:
    analysis = {"resamples": 1000, "health": [{"arm": "theirs", "outcome": "seconds", "max": 8}]}
    found = only(run(shifted(3), analysis=analysis))
    assert found.verdict == "ComparatorCollapsed"
    assert found.reason.startswith("median seconds of theirs is ")
    assert found.reason.endswith("and its limit is at most 8")


def test_weak_tuning_is_remarked() -> None:
    search = {"trials": 20, "search": [{"path": "a.b", "min": 0, "max": 1}]}
    arms = [arm("ours", "Candidate", tuning=search), arm("theirs", "Comparator", tuning=search)]
    tuning = [
        {"arm": "ours", "trials": 20, "values": [{"path": "a.b", "value": "1", "atEdge": True}]},
        {"arm": "theirs", "trials": 3},
    ]
    assert run(shifted(1), tuning, arms=arms).flags == [
        "the tuned a.b of ours is at the edge of its range: a wider range might do better",
        "the tuning of theirs made 3 of 20 trials",
    ]
    tuning[1]["failure"] = "JobFailed"
    assert run(shifted(1), tuning, arms=arms).flags[1] == "the tuning of theirs failed: JobFailed"
    assert run(shifted(1)).flags == [
        "comparator theirs is not tuned: a tuned one might do better. Add tuning to the arm"
    ]


def test_the_largest_alpha_has_an_interval() -> None:
    prediction = {**PREDICTION, "direction": "NotWorse", "margin": 1}
    found = only(run(shifted(3), predictions=[prediction], analysis={"alpha": 0.5, "resamples": 1000}))
    assert (found.level, found.verdict) == (0, "Supported")


CONTROLS = [*ARMS, arm("same", "NegativeControl", controlOf="theirs")]
BAD = [*CONTROLS, arm("bad", "PositiveControl", controlOf="theirs")]
OUTCOMES = [outcome("seconds", "Lower"), outcome("offered", "Neither")]


def controlled(same: float = 0, bad: float = 5, offered: float = 0) -> Any:
    def values(block: Block, label: str, name: str) -> float:
        if name == "offered":
            return 100 + block.repetition + (offered if label == "ours" else 0)
        extra = {"same": same, "bad": bad}.get(label, 0.0)
        return 10 + noise(block, "theirs" if label == "same" else label) + extra

    return values


def test_controls_that_pass() -> None:
    result = run(controlled(), arms=BAD, outcomes=OUTCOMES)
    assert result.valid
    assert [one.name for one in result.controls] == [
        "equal offered",
        "negative control same",
        "positive control bad",
    ]


@pytest.mark.parametrize("count", [5, 10])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offered": 1}, "although no arm can influence this outcome"),
        ({"same": 4}, "same and theirs are the same but differ in seconds: p ="),
        ({"bad": -1}, "bad is worse than theirs on purpose, but seconds does not show this: p ="),
    ],
)
def test_a_failed_control_makes_the_experiment_invalid(
    changes: dict[str, float], message: str, count: int
) -> None:
    result = run(controlled(**changes), arms=BAD, outcomes=OUTCOMES, blocks=count)
    (failed,) = [one for one in result.controls if not one.passed]
    assert message in failed.message
    assert not result.valid
    assert [one.verdict for one in result.hypotheses] == [None]
    assert compact(result)["verdicts"] == []


def test_controls_without_data_fail() -> None:
    result = run(lambda block, label, name: None, arms=BAD, outcomes=OUTCOMES)
    assert [one.passed for one in result.controls] == [False] * 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "block 0: seed is 1, but the plan says "),
        ({"repetition": 3}, "block 0: repetition is 3, but the plan says 0"),
        ({"perturbation": "lag"}, "block 0: perturbation is lag"),
        ({"arms": ["ours"]}, "block 0: the order of the arms is"),
        ({"id": 99}, "block 99: the plan has no such block"),
        ({"id": 1}, "block 1: "),
    ],
)
def test_blocks_that_do_not_belong_to_the_plan_are_refused(change: dict[str, Any], message: str) -> None:
    document = plan()
    rows = blocks(document, shifted(1))
    rows[0] |= change
    with pytest.raises(DataMismatch) as error:
        analyse(document, rows)
    assert message in str(error.value)


def test_blocks_after_an_early_stop_count_in_the_worst_case() -> None:
    document = plan(blocks=20)
    early = only(analyse(document, blocks(document, shifted(3))[:8]))
    assert (early.verdict, early.blocks) == ("Supported", 8)
    assert early.sensitivity == "the 12 missing pairs could change the verdict to Contradicted"
    late = only(analyse(document, blocks(document, shifted(3))[:19]))
    assert late.sensitivity.startswith("the missing pair could not change the verdict")


def test_pairs_of_two_bounds_decide_nothing() -> None:
    prediction = {**PREDICTION, "direction": "NotWorse", "margin": 1}
    document = plan(predictions=[prediction], outcomes=[outcome("seconds", "Lower", censoredAt=100.0)])
    rows = blocks(document, lambda block, label, name: 100.0)
    for row in rows:
        for figure in row["figures"]:
            figure["censored"] = True
    found = only(analyse(document, rows))
    assert (found.verdict, found.sensitivity) == ("Undecided", "")
    assert found.reason.startswith("both arms are censored in every pair")
    rows[0]["figures"][0]["censored"] = False
    assert only(analyse(document, rows)).verdict == "Supported"


def test_blocks_that_did_not_run_and_missed_magnitudes_are_deviations() -> None:
    document = plan(perturbations=LAG, predictions=[{**PREDICTION, "perturbation": "lag"}])
    rows = blocks(document, shifted(1))[:28]
    perturbed = next(row for row in rows if row.get("magnitude") == 10)
    perturbed["achieved"] = [{"arm": "ours", "magnitude": 10.5}, {"arm": "theirs", "magnitude": 4}]
    assert analyse(document, rows).deviations == [
        "2 of 30 blocks did not run: 28, 29. The p-values hold only if nobody who had seen values chose the "
        "moment of the stop",
        "lag 10: 18 of 20 runs have no measured magnitude, so nothing shows that they were disturbed",
        "lag 60: 18 of 18 runs have no measured magnitude, so nothing shows that they were disturbed",
        f"block {perturbed['id']}: lag 10 reached 4 in arm theirs",
    ]


def test_a_sweep_has_values_and_no_verdicts() -> None:
    sweep = {"parameters": [{"name": "rate", "path": "rate", "values": [1, 2, 4]}]}
    result = run(
        lambda block, label, name: float(label),
        arms=[arm("ours", "Candidate")],
        sweep=sweep,
        predictions=None,
    )
    assert (result.hypotheses, result.controls, result.valid) == ([], [], True)
    assert [(one.arm, one.mean, one.blocks) for one in result.levels] == [
        ("0", 0, 10),
        ("1", 1, 10),
        ("2", 2, 10),
    ]


def test_the_short_form_fits_into_a_status() -> None:
    lags = [{"name": "lag", "kind": "ObservationLag", "magnitudes": [float(one) for one in range(1, 9)]}]
    predictions = [
        {**PREDICTION, "name": f"p{number}", "perturbation": "lag", "margin": 1 / 3} for number in range(4)
    ]
    arms = [*ARMS, *[arm(f"control-number-{at}", "NegativeControl", controlOf="ours") for at in range(10)]]
    result = run(shifted(1), arms=arms, perturbations=lags, predictions=predictions, blocks=2)
    verdict = {"verdict": Verdict.COMPARATOR_COLLAPSED}
    many = [one.model_copy(update=verdict) for one in result.hypotheses]
    found = compact(result.model_copy(update={"hypotheses": many}))
    assert len(json.dumps(found, separators=(",", ":"))) <= MAX_BYTES
    assert (len(found["verdicts"]), len(found["controls"])) == (32, 10)
    assert found["verdicts"][0][:3] == [0, 0, "ComparatorCollapsed"]
