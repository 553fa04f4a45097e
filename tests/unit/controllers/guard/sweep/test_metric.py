"""Tests of the verdicts per metric, of references, and of fingerprints."""

from __future__ import annotations

import numpy as np
import pytest

from convoy_controllers.guard.sweep import fingerprint, metric, reference
from convoy_controllers.guard.sweep.measuring import Better
from convoy_controllers.guard.sweep.metric import Criterion
from convoy_controllers.guard.sweep.reference import Reference
from convoy_controllers.guard.sweep.verdict import Outcome, Reason, kept, worst

PASS, FAIL, UNSURE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE


def samples(seed: int, factor: float = 1.0, noise: float = 0.01, count: int = 60) -> list[float]:
    return [float(one) for one in 700 * factor * np.random.default_rng(seed).lognormal(0, noise, count)]


def fleet(count: int = 16, better: Better = Better.HIGHER) -> Reference:
    rng = np.random.default_rng(5)
    rows = {f"n{at:02d}": samples(at, float(rng.lognormal(0, 0.008))) for at in range(count)}
    return reference.freeze("gemm", "h100/570", better, 3, rows)


@pytest.mark.parametrize("better", list(Better))
@pytest.mark.parametrize(
    ("worse", "outcomes"),
    [
        ([0.0], [PASS]),
        ([-0.2], [PASS]),
        ([0.02], [PASS]),
        ([0.10], [UNSURE]),
        ([0.10, 0.10], [UNSURE, FAIL]),
        ([0.10, 0.0, 0.10], [UNSURE, UNSURE, FAIL]),
        ([0.10, 0.0, 0.0], [UNSURE, UNSURE, PASS]),
        ([0.045, 0.045, 0.045], [UNSURE, UNSURE, UNSURE]),
    ],
)
def test_two_runs_of_three_decide(better: Better, worse: list[float], outcomes: list[Outcome]) -> None:
    sign = -1 if better is Better.HIGHER else 1
    runs = [samples(90 + at, 1 + sign * one) for at, one in enumerate(worse)]
    verdict = [metric.judge("x", runs[: at + 1], fleet(better=better)) for at in range(len(runs))]
    assert [one.outcome for one in verdict] == outcomes
    assert [one.again for one in verdict] == [
        one is UNSURE and at + 1 < metric.RUNS for at, one in enumerate(outcomes)
    ]


def test_failed_verdict_contains_its_figures() -> None:
    verdict = metric.judge("x", [samples(1, 0.9)] * 2, fleet())
    assert verdict.reason is Reason.BELOW_REFERENCE and "2 of 2 runs" in verdict.words
    evidence = dict(verdict.evidence)
    assert evidence["deficit"] == pytest.approx(0.1, abs=0.02)
    assert evidence["z"] > 4 and evidence["reference nodes"] == 16


@pytest.mark.parametrize(("name", "worse", "outcome"), [("gemm", 0.042, UNSURE), ("hbm", 0.042, FAIL)])
def test_each_metric_has_a_minimum_deficit(name: str, worse: float, outcome: Outcome) -> None:
    rows = {f"n{at}": samples(at) for at in range(12)}
    known = reference.freeze(name, "c", Better.HIGHER, 1, rows)
    assert metric.judge("x", [samples(70, 1 - worse)] * 3, known).outcome is outcome


def test_spread_of_healthy_nodes_is_not_a_fault() -> None:
    rng = np.random.default_rng(1)
    rows = {f"n{at}": samples(at, float(rng.lognormal(0, 0.05))) for at in range(24)}
    known = reference.freeze("gemm", "c", Better.HIGHER, 1, rows)
    assert metric.judge("x", [samples(70, 0.90)] * 3, known).outcome is not FAIL


@pytest.mark.parametrize(("noise", "outcome"), [(0.02, PASS), (0.05, FAIL)])
def test_node_with_more_than_three_times_the_usual_variance_fails(noise: float, outcome: Outcome) -> None:
    verdict = metric.judge("x", [samples(70, 1.0, noise), samples(71, 1.0, noise)], fleet())
    assert verdict.outcome is outcome
    assert verdict.reason is (Reason.UNSTEADY if outcome is FAIL else Reason.MEETS_REFERENCE)


def test_a_node_is_not_its_own_reference() -> None:
    rows = {f"n{at}": samples(at) for at in range(8)}
    known = reference.freeze("gemm", "c", Better.HIGHER, 1, rows)
    # n3 itself is one of the eight nodes of the reference. Without n3 the reference has only seven nodes,
    # which is too few.
    assert metric.judge("n3", [samples(3)], known).reason is Reason.TOO_FEW_REFERENCES
    assert metric.judge("x", [samples(3)], known).outcome is PASS


@pytest.mark.parametrize(
    ("floor", "outcome", "reason"),
    [
        (None, UNSURE, Reason.TOO_FEW_REFERENCES),
        (600.0, PASS, Reason.ABOVE_FLOOR),
        (800.0, FAIL, Reason.BELOW_FLOOR),
    ],
)
def test_floor_decides_when_references_are_few(floor: float | None, outcome: Outcome, reason: Reason) -> None:
    known = fleet(metric.FEWEST - 1)
    verdict = metric.judge("x", [samples(1), samples(2)], known, Criterion(0.05, floor=floor))
    assert (verdict.outcome, verdict.reason, verdict.again) == (outcome, reason, False)


@pytest.mark.parametrize("run", [[], [1.0, float("nan")], [0.0, 1.0]])
def test_samples_without_numbers_are_inconclusive(run: list[float]) -> None:
    verdict = metric.judge("x", [run], fleet())
    assert (verdict.outcome, verdict.reason, verdict.again) == (UNSURE, Reason.NOT_MEASURED, True)


def test_metric_without_runs_is_not_measured() -> None:
    assert metric.judge("x", [], fleet()).reason is Reason.NOT_MEASURED


def test_distance_is_one_sided_and_equals_the_relative_shift() -> None:
    row = reference.quantiles(samples(1))
    assert row is not None
    assert reference.distance(row * 0.9, row, Better.HIGHER) == pytest.approx(0.1, abs=0.005)
    assert reference.distance(row * 1.1, row, Better.HIGHER) == 0
    assert reference.distance(row * 1.1, row, Better.LOWER) == pytest.approx(0.1, abs=0.005)


def test_one_bad_member_does_not_move_the_reference() -> None:
    rows = {f"n{at:02d}": samples(at) for at in range(16)}
    usual = reference.healthy(reference.freeze("gemm", "c", Better.HIGHER, 1, rows))
    rows["n03"] = samples(3, 0.5)
    moved = reference.healthy(reference.freeze("gemm", "c", Better.HIGHER, 1, rows))
    assert usual is not None and moved is not None
    assert moved.middle == pytest.approx(usual.middle, rel=0.005)
    assert moved.spread < 2 * usual.spread + 3


@pytest.mark.parametrize("better", list(Better))
@pytest.mark.parametrize(("factor", "alarm"), [(1.0, False), (0.985, False), (0.97, True), (1.03, True)])
def test_decaying_fleet_raises_an_alarm(factor: float, alarm: bool, better: Better) -> None:
    known = fleet(better=better)
    recent = {node: [value * factor for value in row] for node, row in known.members}
    found = reference.drift(known, recent)
    assert found is not None and found.alarm is alarm
    assert found.change == pytest.approx((factor - 1) * (1 if better is Better.HIGHER else -1), abs=0.003)
    assert reference.drift(known, {}) is None


@pytest.mark.parametrize(
    ("runs", "others", "frozen", "outcome", "reason"),
    [
        (["a"], "aaa", None, PASS, Reason.MEETS_REFERENCE),
        (["b"], "aaa", None, FAIL, Reason.CORRUPT),
        (["b"], "aaabb", None, FAIL, Reason.CORRUPT),
        (["b"], "aabb", None, UNSURE, Reason.TOO_FEW_REFERENCES),
        (["b"], "aa", None, UNSURE, Reason.TOO_FEW_REFERENCES),
        (["b"], "", "a", FAIL, Reason.CORRUPT),
        (["a"], "bbb", "a", PASS, Reason.MEETS_REFERENCE),
        (["b", "a"], "aaa", "a", FAIL, Reason.CORRUPT),
        ([], "aaa", None, UNSURE, Reason.NOT_MEASURED),
    ],
)
def test_verdict_on_fingerprint_hashes(
    runs: list[str], others: str, frozen: str | None, outcome: Outcome, reason: Reason
) -> None:
    known = {f"n{at}": one for at, one in enumerate(others)}
    verdict = fingerprint.judge("x", runs, known, frozen)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    assert verdict.sticky is (outcome is FAIL)


def test_a_node_does_not_vote_on_its_own_hash() -> None:
    known = {"x": "b", "y": "b", "n1": "a", "n2": "a"}
    assert fingerprint.agreed(known, without="x") == "a"
    assert fingerprint.agreed(known) is None


def test_a_pass_does_not_clear_corruption() -> None:
    corrupt = fingerprint.judge("x", ["b"], {}, "a")
    clean = fingerprint.judge("x", ["a"], {}, "a")
    slow = metric.judge("x", [samples(1, 0.9)] * 2, fleet())
    assert kept(corrupt, clean) is corrupt
    assert kept(slow, clean) is clean and kept(None, slow) is slow
    assert worst([clean, slow, corrupt]) is corrupt and worst([clean, slow]) is slow
