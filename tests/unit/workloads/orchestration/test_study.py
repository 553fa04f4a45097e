"""Tests of a small study from its plan to its report."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from convoy_workloads.engines.orchestration import ENGINE
from convoy_workloads.engines.orchestration.arms import ROBUST, TUNED
from convoy_workloads.engines.orchestration.claim_rules import lag_rows
from convoy_workloads.engines.orchestration.engine import result
from convoy_workloads.engines.orchestration.params import Params
from convoy_workloads.engines.orchestration.plan import (
    experiments,
    simulation_params,
    study_document,
    study_hash,
)
from convoy_workloads.engines.orchestration.study import InvalidStudy, Study, StudyError
from convoy_workloads.engines.orchestration.systems import SYSTEMS
from convoy_workloads.engines.orchestration.training import shuffled, train
from convoy_workloads.engines.orchestration.work import TuningTask, tune
from convoy_workloads.experiments.analysis import analyse

SMALL = Params.model_validate({**ENGINE.small, "blocks": 9})


@pytest.fixture(scope="module")
def study() -> Study:
    made = Study(SMALL)
    assert len(list(made.work())) == made.steps
    return made


def test_the_plan_is_the_one_from_before_the_first_run(study: Study) -> None:
    assert study.hash == study_hash(study_document(SMALL))


def test_the_result_can_be_computed_again_from_the_files(study: Study) -> None:
    files = study.files()
    plan, data, stored = (
        json.loads(files[f"dag-scheduling-lag.{what}.json"]) for what in ("plan", "data", "result")
    )
    assert analyse(plan, data["blocks"], data["tuning"]).document() == stored
    assert json.loads(files["study-plan.json"])["experiments"] == [plan]


def test_the_same_arm_does_not_differ_and_a_shuffled_one_has_other_figures(study: Study) -> None:
    (item,) = study.finished
    controls = {one.name: one for one in item.result.controls}
    assert controls["negative control same"].passed
    assert {key.arm for _, key in study.runs} >= {"learned", "same", "broken"}
    arms = study.arms["dag-scheduling"]
    learned, broken = arms["learned"]["policy"]["weights"], arms["broken"]["policy"]["weights"]
    assert sorted(learned) == sorted(broken) and learned != broken


def test_the_trained_weights_are_those_that_run(study: Study) -> None:
    weights = study.training["dag-scheduling"].weights
    assert study.arms["dag-scheduling"]["learned"]["policy"]["weights"] == weights


def test_the_report_has_claims_controls_and_flags(study: Study) -> None:
    text = study.files()["study.md"].decode()
    for wanted in (
        "## Claims",
        "## Controls",
        "## Tuning",
        "comparator `own` (fair share) is not tuned",
        "fair share (not tuned)",
        study.hash,
    ):
        assert wanted in text
    assert result(study)["claims"]["artefact"] == "not decidable here"  # type: ignore[index]
    assert len(json.dumps(result(study))) < 3500


def test_arms_with_different_work_are_an_error(study: Study) -> None:
    key = next(key for key in study.runs if key[1].arm == "naive")
    kept = study.runs[key]
    study.runs[key] = replace(kept, figures={**kept.figures, "offered": 0.0})
    try:
        with pytest.raises(StudyError, match="the arms got different work"):
            study.blocks(experiments(SMALL)[0])
    finally:
        study.runs[key] = kept


def test_a_plan_that_can_reach_no_verdict_is_refused_before_the_first_run() -> None:
    with pytest.raises(
        InvalidStudy, match=r"dag-scheduling-lag: spec\.blocks: with 6 blocks .* set blocks to 9"
    ):
        Study(SMALL.model_copy(update={"blocks": 6}))


def test_training_is_repeatable_and_autoscaling_trains_itself() -> None:
    assert train(SYSTEMS[1], SMALL) == train(SYSTEMS[1], SMALL)
    assert train(SYSTEMS[0], SMALL) is None


def test_shuffled_items_are_the_same_items() -> None:
    assert sorted(shuffled(range(9), 1)) == list(range(9)) != shuffled(range(9), 1)


def test_every_second_tuning_window_of_an_arm_may_be_perturbed() -> None:
    system = SYSTEMS[0]
    params = Params(seconds=600, trials=1, tuning_windows=2, iterations=1, jobs=4)
    robust, plain = (next(arm for arm in system.arms if arm.name == name) for name in (ROBUST, TUNED))
    body = simulation_params(system, robust, params)
    assert simulation_params(system, plain, params) == body
    scores = [tune(TuningTask(system, arm, params, body))["best"] for arm in (robust, plain)]
    assert scores[0] != scores[1]


def test_an_arm_beside_the_experiment_is_in_the_lag_table_but_not_in_the_data() -> None:
    small = {**ENGINE.small, "systems": ["autoscaling"], "blocks": 9, "seconds": 600}
    made = Study(Params.model_validate(small))
    assert len(list(made.work())) == made.steps
    (row,) = lag_rows(made.finished)
    assert {ROBUST, TUNED} <= set(row.over)
    data = json.loads(made.files()["autoscaling-lag.data.json"])
    assert ROBUST not in {one["arm"] for block in data["blocks"] for one in block["figures"]}
    assert ROBUST not in {one["arm"] for one in data["tuning"]}
