"""Tests of the study's plan: it is valid, fixed beforehand, and its windows are disjoint."""

from __future__ import annotations

import itertools

import pytest

from convoy.cli.manifest import parse, problems
from convoy_workloads.engines.orchestration.arms import LAG, ROBUST
from convoy_workloads.engines.orchestration.params import Params
from convoy_workloads.engines.orchestration.plan import (
    ALPHA,
    experiments,
    study_document,
    study_hash,
    window_seeds,
)
from convoy_workloads.engines.orchestration.systems import SYSTEMS, System, arm_names
from convoy_workloads.experiments import register
from convoy_workloads.simulators.run import find

FAST = Params(seconds=600, jobs=4, blocks=2, tuning_windows=1, iterations=1)


@pytest.mark.parametrize("number", range(12))
def test_each_plan_is_a_valid_experiment(number: int) -> None:
    plan = experiments(Params())[number].plan
    assert register.problems(register.spec_of(plan)) == []
    manifest = {key: plan[key] for key in ("apiVersion", "kind", "spec")}
    parsed = parse({**manifest, "metadata": {"name": plan["name"]}}, 1)
    assert problems(parsed, [parsed]) == []


def test_the_study_keeps_its_error_over_all_experiments() -> None:
    plans = [one.plan for one in experiments(Params())]
    assert sum(one["spec"]["analysis"]["alpha"] for one in plans) == pytest.approx(ALPHA)


def test_tuned_arms_have_equal_budgets() -> None:
    for one in experiments(Params(trials=7)):
        budgets = {
            arm["tuning"]["trials"]
            for arm in one.plan["spec"]["arms"]
            if arm["role"] in ("Candidate", "Comparator")
        }
        assert budgets == {7}


def test_no_window_has_two_uses() -> None:
    found = window_seeds(Params())
    for (_, one), (_, other) in itertools.combinations(found.items(), 2):
        assert not set(one) & set(other)
    assert all(seed >= 0 for one in found.values() for seed in one)


def test_the_hash_covers_windows_predictions_and_rules_but_no_processes() -> None:
    document = study_document(FAST)
    assert study_hash(document) == study_hash(study_document(FAST.model_copy(update={"workers": 7})))
    assert study_hash(document) != study_hash(study_document(FAST.model_copy(update={"seed": 2})))
    assert set(document["windows"]) == {system.name for system in SYSTEMS}
    assert all(len({*one.values()}) == 2 for one in document["windows"].values())


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda one: one.name)
def test_the_simulator_has_the_figures_and_perturbations_of_the_study(system: System) -> None:
    known = find(system.name)
    assert {system.primary, system.secondary, system.tuned, *system.operational, "offered"} <= set(
        known.figures
    )
    assert system.tuned == system.outcomes[0]
    assert set(system.outcomes) == {system.primary, system.secondary}
    assert set(system.magnitudes) <= {kind.value for kind in known.perturbations}


def test_an_arm_that_is_tuned_under_a_perturbation_stands_beside_the_experiments() -> None:
    autoscaling = [one for one in experiments(Params()) if one.system.name == "autoscaling"]
    for one in autoscaling:
        assert ROBUST not in {arm["name"] for arm in one.plan["spec"]["arms"]}
    assert ROBUST in arm_names(autoscaling[0].system)
    assert study_document(FAST)["beside"][f"autoscaling/{ROBUST}"]["tunedUnder"] == ["ObservationLag", LAG]
