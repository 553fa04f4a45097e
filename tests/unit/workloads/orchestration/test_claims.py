"""Tests of the rules that decide on the claims."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_crds.experiment_status import Verdict
from convoy_workloads.engines.orchestration.claims import RULES, ClaimAnswer, Finished, decide_claims
from convoy_workloads.engines.orchestration.systems import SYSTEMS
from convoy_workloads.experiments.result import BlockCounts, HypothesisResult, Result

AUTOSCALING, DAG = SYSTEMS[0], SYSTEMS[1]
S, C, U = Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.UNDECIDED
COLLAPSED = Verdict.COMPARATOR_COLLAPSED


def one(prediction: str, verdict: Verdict, magnitude: float | None = 1.0, **more: Any) -> HypothesisResult:
    return HypothesisResult.model_validate(
        {
            "prediction": prediction,
            "prediction_index": 0,
            "candidate": "learned",
            "comparator": prediction.partition("-")[2],
            "outcome": "x",
            "unit": "",
            "direction": "Better" if prediction.startswith("gain") else "Worse",
            "margin": 0,
            "contrast": "Degradation" if prediction.startswith("degrades") else "Level",
            "perturbation": "" if magnitude is None else "lag",
            "magnitude": magnitude,
            "verdict": verdict,
            "reason": "",
            "blocks": 30,
            "failed": [],
            "censored_candidate": 0,
            "censored_comparator": 0,
            "level": 0.9,
            "raw_p": 0.01,
            "p": 0.01,
            "repetitions": [],
            "differences": [],
            **more,
        }
    )


def every(what: str, verdict: Verdict, **more: Any) -> list[HypothesisResult]:
    return [one(f"{what}-{arm}", verdict, **more) for arm in ("own", "default", "tuned")]


def decided(
    name: str,
    *hypotheses: HypothesisResult,
    system: Any = DAG,
    kind: str = "ObservationLag",
    valid: bool = True,
) -> ClaimAnswer:
    result = Result(
        experiment="e",
        plan_hash="",
        valid=valid,
        alpha=0.05,
        power=0.8,
        blocks=BlockCounts(planned=1, ended=1, failed=0),
        controls=[],
        hypotheses=list(hypotheses),
        levels=[],
        tuning=[],
        flags=[],
        deviations=[],
        failures=[],
    )
    found = {item.name: item for item in decide_claims([Finished(system, kind, result)])}
    assert list(found) == list(RULES)
    return found[name].answer


def gains(ratio: float) -> list[HypothesisResult]:
    return every("gain", U, magnitude=None, ratio=ratio)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [((S, S, U), ClaimAnswer.NOT_SEEN), ((S, U, U), ClaimAnswer.SEEN), ((C, C, C), ClaimAnswer.SEEN)],
)
def test_reversals_are_counted(verdicts: tuple[Verdict, ...], expected: ClaimAnswer) -> None:
    found = [
        one(f"reversal-{arm}", it) for arm, it in zip(("own", "default", "tuned"), verdicts, strict=True)
    ]
    assert decided("reversals", *found, *every("degrades", U), *gains(1.0)) is expected


def test_no_reversal_is_possible_where_the_learned_arm_loses_anyway() -> None:
    rest = [*every("reversal", S), *every("degrades", U)]
    assert decided("reversals", *every("gain", C, magnitude=None), *rest) is ClaimAnswer.NOT_DECIDABLE
    mixed = [*every("gain", C, magnitude=None)[:2], one("gain-tuned", S, None)]
    assert decided("reversals", *mixed, *rest) is ClaimAnswer.NOT_SEEN


@pytest.mark.parametrize(
    ("own", "tuned", "expected"),
    [
        (COLLAPSED, COLLAPSED, ClaimAnswer.SEEN),
        (C, U, ClaimAnswer.SEEN),
        (C, C, ClaimAnswer.NOT_SEEN),
        (S, U, ClaimAnswer.NOT_DECIDABLE),
    ],
)
def test_a_failed_prediction_is_explained_by_the_comparator(
    own: Verdict, tuned: Verdict, expected: ClaimAnswer
) -> None:
    found = [one("degrades-own", own), one("degrades-default", U), one("degrades-tuned", tuned)]
    assert decided("diagnosis", *found, *every("reversal", U), *gains(1.0)) is expected


@pytest.mark.parametrize(
    ("own", "low", "tuned", "expected"),
    [
        (40.0, 30.0, 1.0, ClaimAnswer.SEEN),
        (40.0, 30.0, -5.0, ClaimAnswer.SEEN),
        (40.0, 30.0, 20.0, ClaimAnswer.NOT_SEEN),
        (40.0, -1.0, 1.0, ClaimAnswer.NOT_SEEN),
    ],
)
def test_the_lag_advantage_is_compared_at_the_lag_where_it_is_largest(
    own: float, low: float, tuned: float, expected: ClaimAnswer
) -> None:
    found = [
        one("degrades-own", C, 60.0, effect=own, low=low),
        one("degrades-own", C, 30.0, effect=1.0, low=0.5),
        one("degrades-default", C, 60.0, effect=2.0),
        one("degrades-tuned", C, 60.0, effect=tuned),
        one("degrades-tuned", C, 30.0, effect=1.0),
    ]
    rest = [*every("reversal", U, magnitude=60.0), *gains(1.0)]
    found += [one("degrades-default", U, 30.0)]
    assert decided("lag", *found, *rest, system=AUTOSCALING) is expected


@pytest.mark.parametrize(("ratio", "expected"), [(0.95, ClaimAnswer.SEEN), (0.7, ClaimAnswer.NOT_SEEN)])
def test_the_margin_is_compared_with_the_published_one(ratio: float, expected: ClaimAnswer) -> None:
    assert decided("margin", *gains(ratio), *every("degrades", U), *every("reversal", U)) is expected


def test_a_reversal_with_the_magnitude_needs_both_verdicts() -> None:
    rest = [*every("degrades", U), *gains(1.0)]
    small, large = every("reversal", S, magnitude=1.0), every("reversal", C, magnitude=2.0)
    both = [*every("degrades", U), *every("degrades", U, magnitude=2.0)]
    assert decided("magnitude", *small, *large, *both, *gains(1.0)) is ClaimAnswer.SEEN
    assert decided("magnitude", *small, *rest) is ClaimAnswer.NOT_SEEN


def test_a_reversal_with_the_mode_needs_opposite_signs_under_one_condition() -> None:
    level, change = every("reversal", S), every("degrades", C)
    assert decided("mode", *level, *change, *gains(1.0)) is ClaimAnswer.SEEN
    assert decided("mode", *level, *every("degrades", S), *gains(1.0)) is ClaimAnswer.NOT_SEEN
    assert decided("mode", *level, *every("degrades", U), *gains(1.0)) is ClaimAnswer.NOT_SEEN


def test_nothing_is_decided_by_an_invalid_experiment() -> None:
    found = [*every("reversal", S), *every("degrades", S), *gains(0.5)]
    for name in RULES:
        assert decided(name, *found, valid=False) is ClaimAnswer.NOT_DECIDABLE
