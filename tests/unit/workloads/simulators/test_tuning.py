"""Tests of the tuning: the same input gives the same trials, and every trial counts."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field

from convoy_crds.experiment_arm import TunedParameter
from convoy_crds.experiment_plan import Better
from convoy_crds.meta import Model
from convoy_workloads.simulators import run as run_module
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.simulator import InvalidSimulation, Outcome, Simulator
from convoy_workloads.simulators.tuning import MAX_ERROR, Tuner, TuningLog, TuningPlan


class Inner(Model):
    x: Annotated[float, Field(le=8)] = 1.0
    mode: str = "plain"


class Params(Model):
    inner: Inner = Field(default_factory=Inner)
    count: int = 2


def parabola(params: Params, seed: int, perturbation: Perturbation | None) -> Outcome:
    bonus = 1 if params.inner.mode == "good" else 0
    return Outcome({"cost": (params.inner.x - 3) ** 2 + abs(params.count - 7) - bonus + seed})


PARABOLA = Simulator("parabola", Params, {"cost": ""}, frozenset(), parabola)
X = TunedParameter.model_validate({"path": "inner.x", "min": 0, "max": 10})


@pytest.fixture(autouse=True)
def _only_the_parabola(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "SIMULATORS", (PARABOLA,))


def plan(*search: dict[str, Any] | TunedParameter, trials: int = 12, **more: Any) -> TuningPlan:
    listed = [TunedParameter.model_validate(one) for one in search] or [X]
    facts: dict[str, Any] = {
        "simulator": "parabola",
        "params": {},
        "seeds": [0, 2],
        "figure": "cost",
        "better": Better.LOWER,
        "seed": 5,
        **more,
    }
    return TuningPlan(search=listed, trials=trials, **facts)


def tune(made: TuningPlan, log: TuningLog | None = None) -> Tuner:
    tuner = Tuner(made, log)
    for _ in tuner.trials():
        pass
    return tuner


def test_a_tuning_has_all_its_trials_and_repeats_itself() -> None:
    first, again, other = tune(plan()), tune(plan()), tune(plan(seed=6))
    assert len(first.log.trials) == 12
    assert first.log.digest == again.log.digest != other.log.digest
    assert first.best().score == min(one.score for one in first.log.trials if one.score is not None)
    assert [one.best for one in first.log.trials] == sorted(
        (one.best or 0 for one in first.log.trials), reverse=True
    )
    assert all(one.figures == (one.score - 1, one.score + 1) for one in first.log.trials if one.score)


def test_an_interrupted_tuning_goes_on_with_its_log() -> None:
    whole = tune(plan())
    part = TuningLog(TuningLog.parse(whole.log.to_json()).trials[:5])
    assert tune(plan(), part).log.digest == whole.log.digest
    with pytest.raises(InvalidSimulation, match="belongs to another plan"):
        Tuner(plan(seed=6), part)


def test_the_own_setting_of_an_arm_is_the_first_trial() -> None:
    tuned = tune(plan(params={"inner": {"x": 3}}))
    assert tuned.log.trials[0].values == {"inner.x": 3}
    assert tuned.best().number == 0
    outside = tune(plan({"path": "inner.x", "min": 4, "max": 8}, params={"inner": {"x": 3}}, trials=2))
    assert outside.log.trials[0].values["inner.x"] >= 4


def test_a_trial_with_invalid_parameters_counts() -> None:
    tuned = tune(plan({"path": "inner.x", "min": 6, "max": 10}, trials=8))
    failed = [one for one in tuned.log.trials if one.score is None]
    assert failed and len(tuned.log.trials) == 8
    assert all("inner.x" in one.error and not one.figures for one in failed)
    assert all(len(one.error) <= MAX_ERROR for one in failed)
    assert tuned.best().values["inner.x"] <= 8
    nowhere = tune(plan({"path": "inner.x", "min": 9, "max": 20}, trials=2))
    with pytest.raises(InvalidSimulation, match="no trial of the tuning has a result: params"):
        nowhere.best()


def test_types_of_parameters_and_the_edges_of_their_ranges() -> None:
    search: list[dict[str, Any]] = [
        {"path": "inner.x", "min": 0.01, "max": 3, "log": True},
        {"path": "count", "type": "Int", "min": 1, "max": 3},
        {"path": "inner.mode", "type": "Categorical", "values": ["plain", "good"]},
    ]
    chosen = {one.path: one for one in tune(plan(*search, trials=25)).chosen()}
    assert chosen["count"].value == 3 and chosen["count"].at_edge
    assert chosen["inner.mode"].value == "good" and not chosen["inner.mode"].at_edge
    inside = tune(plan({"path": "inner.x", "min": 0, "max": 8}, params={"inner": {"x": 3}})).chosen()
    assert not inside[0].at_edge


def test_a_tuning_for_a_higher_figure() -> None:
    assert tune(plan(better=Better.HIGHER, trials=30)).best().values["inner.x"] > 6


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (plan(figure="price"), "figure: simulator parabola has no figure 'price'; it has cost"),
        (plan(better=Better.NEITHER), "better: must be Higher or Lower"),
        (plan(simulator="circle"), "there is no simulator 'circle'"),
        (plan({"path": "inner.x", "min": 0, "max": 1, "log": True}), "min must be above 0"),
        (plan({"path": "count", "type": "Int", "min": 1.2, "max": 1.8}), "no whole number from 1.2 to 1.8"),
    ],
)
def test_an_impossible_tuning_is_refused(made: TuningPlan, words: str) -> None:
    with pytest.raises(InvalidSimulation, match=words):
        Tuner(made)


def test_a_block_seed_of_48_bits_is_a_seed_of_the_sampler() -> None:
    assert len(tune(plan(seed=2**48 - 1, trials=2)).log.trials) == 2
