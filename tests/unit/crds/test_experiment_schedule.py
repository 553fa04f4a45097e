"""Tests of the schedule of an Experiment's blocks, and of the hash of its plan."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_crds.experiment_hash import plan_document, plan_hash
from convoy_crds.experiment_schedule import combinations, schedule, seed_of, tuning_seed
from convoy_crds.experiment_status import PlanEngine

from .experiments import arm, make_spec, spec

PERTURBED = {
    "arms": [arm(f"arm{number}", role) for number, role in enumerate(["Candidate", "Comparator", "Naive"])],
    "predictions": [
        {
            "name": "p",
            "outcome": "late",
            "candidate": "arm0",
            "comparator": "arm1",
            "direction": "Better",
            "perturbation": "lag",
        }
    ],
    "perturbations": [{"name": "lag", "kind": "ObservationLag", "magnitudes": [15, 60]}],
    "blocks": 9,
}


def test_every_condition_has_every_repetition_and_every_arm_once() -> None:
    blocks = schedule(make_spec(**PERTURBED))
    assert [one.id for one in blocks] == list(range(27))
    assert {(one.cell.magnitude, one.repetition) for one in blocks} == {
        (magnitude, repetition) for magnitude in (None, 15.0, 60.0) for repetition in range(9)
    }
    assert all(sorted(one.arms) == ["arm0", "arm1", "arm2"] for one in blocks)


def test_a_repetition_is_complete_before_the_next_one() -> None:
    repetitions = [one.repetition for one in schedule(make_spec(**PERTURBED))]
    assert repetitions == sorted(repetitions)


def test_a_repetition_has_one_seed_under_all_conditions() -> None:
    blocks = schedule(make_spec(**PERTURBED))
    assert {(one.repetition, one.seed) for one in blocks} == {(n, seed_of(0, n)) for n in range(9)}
    assert len({one.seed for one in blocks}) == 9


def test_orders_are_random_and_follow_from_the_seed() -> None:
    first, second = (schedule(make_spec(**PERTURBED, seed=seed)) for seed in (1, 2))
    assert first == schedule(make_spec(**PERTURBED, seed=1))
    assert [one.arms for one in first] != [one.arms for one in second]
    assert len({one.arms for one in first}) > 2
    assert len({one.cell for one in first if one.id % 3 == 0}) > 1


def test_the_schedule_never_changes() -> None:
    """A change of these values would break experiments that run while Convoy is upgraded."""
    first = schedule(make_spec(**PERTURBED, seed=7))[0]
    assert (first.seed, first.arms, first.cell.magnitude) == (155561484404605, ("arm0", "arm2", "arm1"), 60.0)


def test_no_block_has_a_seed_of_the_tuning() -> None:
    tuning = {tuning_seed(seed, block) for seed in range(5) for block in range(32)}
    assert not tuning & {seed_of(seed, block) for seed in range(5) for block in range(200)}
    assert len(tuning) == 160
    assert max(tuning) < 2**53


def test_a_sweep_runs_every_combination_once_per_repetition() -> None:
    parameters = [
        {"name": "a", "path": "a", "values": [1, 2, 3]},
        {"name": "b", "path": "b", "values": [{}, "x"]},
    ]
    swept = make_spec(
        arms=[arm("only", "Candidate")], predictions=None, sweep={"parameters": parameters}, blocks=2
    )
    assert swept.sweep is not None
    assert combinations(swept.sweep.parameters)[:3] == ((1, {}), (1, "x"), (2, {}))
    blocks = schedule(swept)
    assert {(one.combination, one.repetition) for one in blocks} == {(c, r) for c in range(6) for r in (0, 1)}
    assert {one.labels for one in blocks} == {(str(number),) for number in range(6)}


def hashed(**more: Any) -> str:
    """Return the hash of a plan with these fields of the spec."""
    return plan_hash(plan_document("trial", spec(**more), [PlanEngine(name="b", image="b:1")]))


def test_suspend_and_stop_are_no_part_of_the_plan() -> None:
    assert hashed() == hashed(suspend=True, stop=True)


@pytest.mark.parametrize("change", [{"blocks": 4}, {"seed": 1}, {"store": "other"}])
def test_every_other_field_is_a_part_of_the_plan(change: dict[str, Any]) -> None:
    assert hashed() != hashed(**change)


def test_the_hash_depends_on_name_and_images_but_not_on_orders() -> None:
    first, second = PlanEngine(name="a", image="a:1"), PlanEngine(name="b", image="b:1")
    plan = plan_document("trial", spec(), [first, second])
    reordered = plan_document("trial", dict(reversed(spec().items())), [second, first])
    assert plan_hash(plan) == plan_hash(reordered)
    moved = PlanEngine(name="b", image="b:2")
    assert plan_hash(plan) != plan_hash(plan_document("trial", spec(), [first, moved]))
    assert plan_hash(plan) != plan_hash(plan_document("other", spec(), [first, second]))
