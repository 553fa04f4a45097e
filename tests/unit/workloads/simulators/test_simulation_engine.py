"""Tests of the engine experiment-simulation: its parameters, its results, and the state of a tuning."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from convoy_crds.params import params_error
from convoy_workloads.engines.catalogue import catalogue
from convoy_workloads.engines.experiment_simulation.params import Params, RunParams, TuneParams
from convoy_workloads.engines.experiment_simulation.results import plan_of, run_result, tune_result
from convoy_workloads.engines.experiment_simulation.tuning_state import FILE, TuningState
from convoy_workloads.runtime.result import encode_result
from convoy_workloads.simulators.tuning import Tuner

RUN: dict[str, Any] = {
    "action": "run",
    "simulator": "autoscaling",
    "params": {"seconds": 120},
    "seed": 3,
    "perturbation": {"kind": "ObservationLag", "magnitude": 30, "start": 0, "duration": None},
}
TUNE: dict[str, Any] = {
    "action": "tune",
    "simulator": "autoscaling",
    "params": {"seconds": 120, "policy": {"name": "hpa"}},
    "search": [{"path": "policy.target", "min": 30, "max": 90}],
    "trials": 3,
    "seeds": [1, 2],
    "figure": "weightedCost",
    "better": "Lower",
    "seed": 2**48,
}


def test_a_run_has_the_result_that_an_experiment_reads() -> None:
    params = Params.model_validate(RUN).root
    assert isinstance(params, RunParams)
    result = json.loads(encode_result(run_result(params)))
    assert set(result) == {"figures", "censored", "achieved"}
    assert result["figures"]["offered"] > 0
    assert result["achieved"] == 30


def test_a_tuning_has_the_result_that_an_experiment_reads() -> None:
    params = Params.model_validate(TUNE).root
    assert isinstance(params, TuneParams)
    tuner = Tuner(plan_of(params))
    assert len(list(tuner.trials())) == 3
    result = json.loads(encode_result(tune_result(tuner, 1.5)))
    assert set(result) == {"values", "best", "trials", "seconds", "log"}
    assert result["values"][0]["path"] == "policy.target"
    assert isinstance(json.loads(result["values"][0]["value"]), float)
    assert (result["trials"], result["seconds"], result["log"]) == (3, 1.5, tuner.log.digest)


def test_the_state_of_a_tuning_keeps_its_length_and_its_log() -> None:
    params = Params.model_validate(TUNE).root
    assert isinstance(params, TuneParams)
    plan = plan_of(params)
    state, restored = TuningState(plan), TuningState(plan)
    empty = state.state_dict()[FILE]
    tuner = Tuner(plan)
    state.log = tuner.log
    next(tuner.trials())
    saved = state.state_dict()
    assert saved[FILE].shape == empty.shape
    restored.load_state_dict(saved)
    assert restored.log.to_json() == tuner.log.to_json()
    rest = Tuner(plan, restored.log)
    assert len(list(rest.trials())) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"action": "walk"},
        {"seed": -1},
        {"trials": 3},
        {"perturbation": {"kind": "Earthquake", "magnitude": 1}},
    ],
)
def test_the_schema_of_the_engine_refuses_what_the_engine_refuses(change: dict[str, Any]) -> None:
    schema = catalogue()["experiment-simulation"].spec.params_schema
    assert params_error(schema, RUN) is None
    assert params_error(schema, TUNE) is None
    assert params_error(schema, {**RUN, **change}) is not None
    with pytest.raises(ValidationError):
        Params.model_validate({**RUN, **change})
