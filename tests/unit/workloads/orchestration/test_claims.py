"""Tests of the rules that decide on the claims."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from convoy_crds.experiment_status import BlockStatus, Verdict
from convoy_workloads.engines.orchestration.arms import ARMS, DEFAULT, LAG, LEARNED, OWN, TUNED
from convoy_workloads.engines.orchestration.claim_rules import LAG_ARMS, ClaimAnswer, lag_rows, untuned_arm
from convoy_workloads.engines.orchestration.claims import CLAIMS, ClaimResult, decide_claims
from convoy_workloads.engines.orchestration.evidence import Finished, estimated, share_left
from convoy_workloads.engines.orchestration.systems import SYSTEMS
from convoy_workloads.experiments.observations import Observations
from convoy_workloads.experiments.result import HypothesisResult, Result

AUTOSCALING, DAG = SYSTEMS[0], SYSTEMS[1]
S, C, U = Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.UNDECIDED
COLLAPSED = Verdict.COMPARATOR_COLLAPSED
WINDOWS = 12
SIMULATED = (LEARNED, *LAG_ARMS)
Levels = Mapping[tuple[str, float | None], float]
"""Mean figure by arm and magnitude of the perturbation. An absent one is 100."""


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
            "blocks": WINDOWS,
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


def every(what: str, verdict: Verdict, magnitude: float | None = 1.0, **more: Any) -> list[HypothesisResult]:
    return [one(f"{what}-{arm}", verdict, magnitude, **more) for arm in (OWN, DEFAULT, TUNED)]


def gains(verdict: Verdict = U, **more: Any) -> list[HypothesisResult]:
    return every("gain", verdict, magnitude=None, **more)


def observed(levels: Levels, magnitudes: Iterable[float | None], noise: float) -> list[BlockStatus]:
    """Return the figures of all arms in all windows: the levels, with noise that differs between arms."""
    draw = random.Random(1)
    blocks = [
        {
            "id": number,
            "repetition": repetition,
            "seed": repetition,
            "perturbation": "" if magnitude is None else "lag",
            "magnitude": magnitude,
            "arms": [*SIMULATED],
            "figures": [
                {
                    "arm": arm,
                    "outcome": system.primary,
                    "value": levels.get((arm, magnitude), 100.0) + draw.gauss(0, noise),
                }
                for arm in SIMULATED
                for system in (AUTOSCALING, DAG)
            ],
        }
        for number, (magnitude, repetition) in enumerate(
            (magnitude, repetition) for magnitude in magnitudes for repetition in range(WINDOWS)
        )
    ]
    return [BlockStatus.model_validate(one) for one in blocks]


def finished(
    *hypotheses: HypothesisResult,
    levels: Levels | None = None,
    system: Any = DAG,
    kind: str = "ObservationLag",
    noise: float = 0.1,
    valid: bool = True,
) -> Finished:
    # Only the fields that the rules read.
    result = Result.model_construct(experiment="e", valid=valid, alpha=0.05, hypotheses=list(hypotheses))
    magnitudes = dict.fromkeys([None, *(item.magnitude for item in hypotheses)])
    blocks = observed(levels or {}, magnitudes, noise)
    return Finished(system, kind, result, blocks, Observations(blocks))


def claim(name: str, *hypotheses: HypothesisResult, **more: Any) -> ClaimResult:
    found = {item.name: item for item in decide_claims([finished(*hypotheses, **more)])}
    assert list(found) == list(CLAIMS)
    return found[name]


def reversed_against(*verdicts: Verdict) -> list[HypothesisResult]:
    found = [one(f"reversal-{arm}", it) for arm, it in zip((OWN, DEFAULT, TUNED), verdicts, strict=True)]
    return [*found, *every("degrades", U), *gains()]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ((S, S, U), ClaimAnswer.NOT_SEEN),
        ((C, C, S), ClaimAnswer.SEEN),
        ((C, C, C), ClaimAnswer.SEEN),
        ((S, U, U), ClaimAnswer.UNDECIDED),
        ((U, U, U), ClaimAnswer.UNDECIDED),
        ((C, COLLAPSED, COLLAPSED), ClaimAnswer.UNDECIDED),
    ],
)
def test_undecided_and_collapsed_reversals_exclude_nothing(
    verdicts: tuple[Verdict, ...], expected: ClaimAnswer
) -> None:
    large_noise = {"noise": 60.0}
    assert claim("reversals", *reversed_against(*verdicts), **large_noise).answer is expected


def test_a_reversal_is_excluded_where_the_interval_allows_only_a_small_loss() -> None:
    undecided = reversed_against(U, U, U)
    slightly_worse: Levels = {(LEARNED, 1.0): 102.0}
    found = claim("reversals", *undecided, levels=slightly_worse)
    assert found.answer is ClaimAnswer.SEEN
    assert "of 3 predicted reversals, 0 occur, 3 are excluded" in found.reason
    worse: Levels = {(LEARNED, 1.0): 106.0}
    assert claim("reversals", *undecided, levels=worse).answer is ClaimAnswer.UNDECIDED


def test_no_reversal_is_possible_where_the_learned_arm_loses_anyway() -> None:
    rest = [*every("reversal", S), *every("degrades", U)]
    assert claim("reversals", *gains(C), *rest).answer is ClaimAnswer.NOT_DECIDABLE
    mixed = [*gains(C)[:2], one("gain-tuned", S, None)]
    assert claim("reversals", *mixed, *rest).answer is ClaimAnswer.NOT_SEEN


@pytest.mark.parametrize(
    ("own", "own_level", "expected"),
    [
        (COLLAPSED, 100.0, ClaimAnswer.SEEN),
        (C, 110.0, ClaimAnswer.SEEN),
        (C, 100.0, ClaimAnswer.NOT_SEEN),
        (S, 110.0, ClaimAnswer.UNDECIDED),
        (U, 110.0, ClaimAnswer.UNDECIDED),
    ],
)
def test_a_failed_prediction_is_explained_by_a_comparator_that_degrades_more(
    own: Verdict, own_level: float, expected: ClaimAnswer
) -> None:
    # The verdict against the tuned comparator, U, must not matter.
    found = [one("degrades-own", own), one("degrades-default", U), one("degrades-tuned", U)]
    rest = [*every("reversal", U), *gains()]
    levels: Levels = {(OWN, 1.0): own_level}
    assert claim("diagnosis", *found, *rest, levels=levels).answer is expected


def lag(own: float, tuned: float, noise: float = 0.1, at: float = LAG) -> ClaimResult:
    """Decide the claim about lag where the comparators degrade by these percentages of late requests."""
    found = [item for lag in (30.0, at) for item in (*every("degrades", U, lag), *every("reversal", U, lag))]
    levels: Levels = {(OWN, 30.0): 300.0, (OWN, at): 100 + own, (TUNED, at): 100 + tuned}
    return claim("lag", *found, *gains(), levels=levels, system=AUTOSCALING, noise=noise)


@pytest.mark.parametrize(
    ("own", "tuned", "noise", "expected"),
    [
        (40.0, 1.0, 0.1, ClaimAnswer.SEEN),
        (40.0, -5.0, 0.1, ClaimAnswer.SEEN),
        (40.0, 20.0, 0.1, ClaimAnswer.NOT_SEEN),
        (-40.0, 0.0, 0.1, ClaimAnswer.NOT_SEEN),
        (40.0, 4.0, 2.0, ClaimAnswer.UNDECIDED),
        (0.0, 0.0, 6.0, ClaimAnswer.UNDECIDED),
    ],
)
def test_the_lag_advantage_vanishes_only_if_the_interval_of_what_is_left_says_so(
    own: float, tuned: float, noise: float, expected: ClaimAnswer
) -> None:
    assert lag(own, tuned, noise).answer is expected


def test_the_lag_is_the_registered_one_and_not_the_one_with_the_largest_advantage() -> None:
    assert f"at a lag of {LAG:g} s" in lag(40.0, 1.0).reason
    assert lag(40.0, 1.0, at=90.0).answer is ClaimAnswer.NOT_DECIDABLE


def test_all_lags_are_reported_and_a_share_only_of_a_shown_advantage() -> None:
    found = [*every("degrades", U, 30.0), *every("degrades", U, LAG)]
    levels: Levels = {(OWN, LAG): 140.0, (DEFAULT, LAG): 120.0}
    rows = lag_rows([finished(*found, *gains(), levels=levels, system=AUTOSCALING)])
    assert [row.lag for row in rows] == [30.0, LAG]
    assert set(rows[0].left.values()) == {None}
    assert rows[1].over[OWN].value == pytest.approx(40, abs=0.2)
    left = rows[1].left[DEFAULT]
    assert left is not None and left.low < 0.5 < left.high and left.high - left.low < 0.02


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.92, 0.98, ClaimAnswer.SEEN),
        (0.85, 0.98, ClaimAnswer.UNDECIDED),
        (0.60, 0.80, ClaimAnswer.NOT_SEEN),
    ],
)
def test_the_interval_of_the_margin_is_compared_with_the_published_one(
    low: float, high: float, expected: ClaimAnswer
) -> None:
    found = gains(ratio=(low + high) / 2, ratio_low=low, ratio_high=high)
    assert claim("margin", *found, *every("degrades", U), *every("reversal", U)).answer is expected


def test_a_reversal_with_the_magnitude_needs_both_verdicts() -> None:
    def at(first: Verdict, second: Verdict, **more: Any) -> ClaimAnswer:
        return claim(
            "magnitude", *every("reversal", first), *every("reversal", second, 2.0), *gains(), **more
        ).answer

    assert at(S, C) is ClaimAnswer.SEEN
    assert at(S, S) is ClaimAnswer.NOT_SEEN
    assert at(S, U) is ClaimAnswer.UNDECIDED
    assert claim("magnitude", *every("reversal", S), *gains()).answer is ClaimAnswer.NOT_DECIDABLE


def test_a_lighter_load_is_no_smaller_size_of_a_heavier_one() -> None:
    light, heavy = every("reversal", S, 0.7), every("reversal", C, 2.0)
    shift = {"kind": "WorkloadShift"}
    assert claim("magnitude", *light, *heavy, *gains(), **shift).answer is ClaimAnswer.NOT_DECIDABLE
    both = [*heavy, *every("reversal", S, 1.5)]
    assert claim("magnitude", *both, *gains(), **shift).answer is ClaimAnswer.SEEN


def test_a_reversal_with_the_mode_needs_opposite_signs_against_the_same_comparator() -> None:
    level = every("reversal", S)
    assert claim("mode", *level, *every("degrades", C), *gains()).answer is ClaimAnswer.SEEN
    assert claim("mode", *level, *every("degrades", S), *gains()).answer is ClaimAnswer.NOT_SEEN
    assert claim("mode", *level, *every("degrades", U), *gains()).answer is ClaimAnswer.UNDECIDED
    other = [
        one("reversal-own", S),
        one("degrades-own", U),
        one("reversal-tuned", C),
        one("degrades-tuned", U),
    ]
    assert claim("mode", *other, *gains()).answer is ClaimAnswer.UNDECIDED


@pytest.mark.parametrize(
    ("untuned", "tuned", "level", "expected"),
    [
        (C, S, 110.0, ClaimAnswer.SEEN),
        (C, U, 110.0, ClaimAnswer.SEEN),
        (C, U, 100.0, ClaimAnswer.UNDECIDED),
        (C, C, 110.0, ClaimAnswer.NOT_SEEN),
        (U, U, 110.0, ClaimAnswer.UNDECIDED),
    ],
)
def test_another_verdict_counts_only_if_the_effects_differ(
    untuned: Verdict, tuned: Verdict, level: float, expected: ClaimAnswer
) -> None:
    # The tuned comparator of dag-scheduling is its own one, tuned.
    found = [one("reversal-own", untuned), one("reversal-tuned", tuned), one("reversal-default", S)]
    levels: Levels = {(OWN, 1.0): level}
    assert claim("untuned", *found, *gains(S), levels=levels).answer is expected


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda one: one.name)
def test_the_untuned_comparator_is_the_tuned_one_before_its_tuning(system: Any) -> None:
    arms = {arm.name: arm for arm in ARMS[system.name]}
    assert arms[untuned_arm(system)].policy == arms[TUNED].policy


def test_nothing_is_decided_by_an_invalid_experiment() -> None:
    found = [*every("reversal", S), *every("degrades", S), *gains(ratio=0.5)]
    for name in CLAIMS:
        assert claim(name, *found, valid=False).answer is ClaimAnswer.NOT_DECIDABLE


def test_an_interval_of_a_share_contains_the_share() -> None:
    draw = random.Random(2)
    whole = [10 + draw.gauss(0, 1) for _ in range(30)]
    found = share_left([one / 4 + draw.gauss(0, 0.5) for one in whole], whole, 0.99)
    assert found is not None and 0.1 < found.low < 0.25 < found.high < 0.4
    assert share_left(whole, [-one for one in whole], 0.99) is None


def test_one_window_has_no_interval() -> None:
    assert estimated([1.0], 0.95) is None
    assert share_left([1.0], [1.0], 0.95) is None


def test_an_arm_whose_runs_are_all_the_same_is_unaffected_by_the_perturbation() -> None:
    found = finished(*every("degrades", U), *gains(), levels={(TUNED, 1.0): 110.0}, noise=0.0)
    assert found.is_unaffected(OWN)
    assert not found.is_unaffected(TUNED)
