"""Tests of the checks of an Experiment's loads, seeds, combinations and sizes before its plan is fixed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.controllers.experiment.labs import Lab
from tests.unit.controllers.experiment.test_experiment_validity import JOB, job_arm, jobs, shown, sweep
from tests.unit.crds.experiments import arm

from convoy_controllers.children import Check
from convoy_controllers.experiment.block_seed import seeded
from convoy_controllers.experiment.checks import MAX_COMBINATIONS
from convoy_controllers.experiment.sizes import analysis_size
from convoy_controllers.testing.builders import make_engine
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.experiment_schedule import schedule
from convoy_crds.params import MAX_PARAMS

SEEDED = {"properties": {"steps": {}, "seed": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}}}
LOAD = {
    "properties": {"rate": {"type": "number", "minimum": 0.001}, "seed": {}, "url": {}, "perturbation": {}},
    "additionalProperties": False,
}


def served(**load: Any) -> list[dict[str, Any]]:
    """Return two arms that serve. The second one has this load."""
    return [
        {"name": name, "type": "ServingJob", "role": role, "template": {"spec": {}}, "load": requests}
        for name, role, requests in (("fast", "Candidate", {"rate": 5}), ("hpa", "Comparator", load))
    ]


@pytest.mark.parametrize(
    ("load", "reason", "part"),
    [
        ({"rate": "many"}, "InvalidParams", "spec.arms[1].load.rate: 'many' is not of type 'number'"),
        ({"rat": 3}, "InvalidParams", "spec.arms[1].load: unknown parameter 'rat'"),
        ({"seed": 3}, "InvalidSpec", "spec.arms[1].load.seed: the experiment sets this parameter"),
        ({"url": "http://x"}, "InvalidSpec", "spec.arms[1].load.url: "),
        ({"perturbation": {}}, "InvalidSpec", "spec.arms[1].load.perturbation: "),
    ],
)
def test_a_wrong_load_is_shown_with_its_path(load: dict[str, Any], reason: str, part: str) -> None:
    lab = Lab(arms=served(**load))
    lab.engines["load"] = make_engine("load", paramsSchema=LOAD)
    found = shown(lab)
    assert (found[0], part in found[1]) == (reason, True), found


def test_a_training_job_gets_the_seed_of_its_block_if_its_engine_has_one() -> None:
    lab = Lab(arms=jobs("hpa", engine={"name": "gpt", "params": {"seed": 7}}), parallelism=6)
    lab.engines["gpt"] = make_engine("gpt", paramsSchema=SEEDED)
    lab.register()
    found: dict[str, list[int]] = {}
    for name in (name for name in lab.active if "-b" in name):
        labels = lab.manifests[name]["metadata"]["labels"]
        found.setdefault(labels["convoy.dev/arm"], []).append(lab.params(name)["seed"])
    assert sorted(found["fast"]) == sorted(block.seed % 2**31 for block in schedule(lab.experiment.spec))
    assert found["hpa"] == [7, 7, 7], "a seed in the template stays"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, None),
        ({"properties": {"seed": {"type": "string"}}}, None),
        ({"properties": {"seed": {"type": "integer"}}}, 1005),
        ({"properties": {"seed": {"type": "integer", "minimum": 1, "maximum": 10}}}, 6),
    ],
)
def test_a_seed_fits_the_schema_of_the_engine(schema: dict[str, Any], value: int | None) -> None:
    engines = {"gpt": make_engine("gpt", paramsSchema=schema)}
    assert seeded(JOB, engines, 1005)["engine"]["params"].get("seed") == value
    assert seeded({"engine": {"name": "other"}}, engines, 5) == {"engine": {"name": "other"}}


def checks(lab: Lab) -> list[str]:
    """Return the names of the jobs that the API server checks."""
    return [child.name for child in lab.plan().children if isinstance(child, Check)]


def test_the_api_server_checks_each_combination_of_a_sweep_of_jobs() -> None:
    lab = sweep(1, 2, 3)
    assert checks(lab) == [f"trial-check-only-{number}" for number in range(3)]
    lab.refused["trial-check-only-2"] = Refusal("admission denied: too many steps")
    assert shown(lab)[1].startswith("spec.arms[0] with steps=3: admission denied: too many steps")
    assert len(checks(sweep(*range(90)))) == MAX_COMBINATIONS


def test_a_sweep_of_simulations_needs_one_check() -> None:
    parameters = [{"name": "n", "path": "n", "values": [1, 2, 3]}]
    lab = Lab(arms=[arm("only", "Candidate")], predictions=None, sweep={"parameters": parameters})
    assert len(checks(lab)) == 1


def test_perturbations_of_all_conditions_are_checked_with_the_schema_of_the_engine() -> None:
    lab = Lab(perturbations=[{"name": "lag", "kind": "ObservationLag", "magnitudes": [1, 2]}])
    kinds = {"properties": {"kind": {}, "magnitude": {"maximum": 1}, "start": {}}}
    schema = {"additionalProperties": True, "properties": {"perturbation": kinds}}
    lab.engines["experiment-simulation"] = make_engine("experiment-simulation", paramsSchema=schema)
    reason, message = shown(lab)
    assert reason == "InvalidParams" and "2.0 is greater than the maximum of 1" in message


def full(number: int, blocks: int = 200, **params: Any) -> Lab:
    """Return an experiment of so many arms, with as many blocks as fit into a status."""
    arms = [
        arm(
            f"a{at}",
            "Candidate" if at else "Comparator",
            simulation={"simulator": "autoscaling", "params": params},
        )
        for at in range(number)
    ]
    prediction = {"name": "p", "outcome": "late", "candidate": "a1", "comparator": "a0"}
    lag = {"name": "lag", "kind": "ObservationLag", "magnitudes": [15]}
    return Lab(
        arms=arms,
        blocks=blocks,
        unperturbed=False,
        perturbations=[lag],
        predictions=[{**prediction, "direction": "Better", "perturbation": "lag"}],
    )


def test_a_plan_whose_results_could_not_reach_the_analysis_is_refused() -> None:
    lab = full(16, note="x" * 1500)
    reason, message = shown(lab)
    assert (reason, message.partition(": ")[0]) == ("InvalidSpec", "spec.blocks")
    assert f"the analysis can get only {MAX_PARAMS}" in message


def test_the_largest_plan_reaches_the_analysis() -> None:
    lab = full(16)
    lab.step()
    assert lab.status.phase == "Registering"
    assert analysis_size(lab.experiment.spec, json.loads(lab.status.plan.document)) <= MAX_PARAMS


def test_arms_that_train_share_their_seed_with_no_engine_parameter() -> None:
    lab = Lab(arms=[job_arm("fast", "Candidate"), job_arm("hpa", "Comparator")])
    lab.register()
    assert lab.manifests[lab.named("-b0-")]["spec"] == JOB
