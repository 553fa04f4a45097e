"""Tests of the checks of an Experiment's simulations."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_status import TunedValue, TuningStatus
from convoy_workloads.simulators.plan_check import problems


def spec(arm: dict[str, Any] | None = None, simulation: dict[str, Any] | None = None, **more: Any) -> Any:
    """Return a spec of two arms. `arm` and `simulation` change the second one."""
    simulated = {"simulator": "autoscaling", "params": {}}
    second = {"name": "b", "type": "Simulation", "role": "Comparator"}
    body = {
        "store": "s3",
        "outcomes": [{"name": "late", "source": {"metric": "latePercent"}, "better": "Lower"}],
        "arms": [
            {"name": "a", "type": "Simulation", "role": "Candidate", "simulation": simulated},
            {**second, "simulation": {**simulated, **(simulation or {})}, **(arm or {})},
        ],
        **more,
    }
    return ExperimentSpec.model_validate(body)


def static(least: float = 1.5, most: float = 9) -> dict[str, Any]:
    search = [{"path": "policy.replicas", "type": "Int", "min": least, "max": most}]
    return {"tuning": {"trials": 2, "search": search}}


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (spec(), []),
        (
            spec(simulation={"simulator": "autoscalin"}),
            ["spec.arms[1].simulation.simulator: there is no simulator 'autoscalin'; did you mean"
             " 'autoscaling'?"],
        ),
        (
            spec(simulation={"params": {"seconds": 1}}),
            ["spec.arms[1].simulation.params.seconds: Input should be greater than or equal to 60"],
        ),
        (
            spec(perturbations=[{"name": "kill", "kind": "KillRank", "magnitudes": [1]}]),
            [f"spec.perturbations[0].kind: simulator autoscaling of arm '{arm}' cannot inject KillRank; it "
             "knows BootDelay, ObservationLag, TelemetryLoss, TelemetryNoise, Tenant, WorkloadShift"
             for arm in "ab"],
        ),
        (
            spec(outcomes=[{"name": "late", "source": {"metric": "latePercen"}, "better": "Lower"}]),
            [f"spec.outcomes[0].source.metric: simulator autoscaling of arm '{arm}' has no figure "
             "'latePercen'; did you mean 'latePercent'?" for arm in "ab"],
        ),
        (spec(simulation={"params": {"policy": {"name": "static"}}}, arm=static()), []),
        (
            spec(simulation={"params": {"policy": {"name": "static"}}}, arm=static(1.2, 1.8)),
            ["spec.arms[1].tuning.search: policy.replicas: there is no whole number from 1.2 to 1.8"],
        ),
        (
            spec(simulation={"params": {"policy": "static"}}, arm=static()),
            ["spec.arms[1].simulation.params.policy.replicas: the field before 'replicas' is neither an "
             "object nor a list"],
        ),
        (
            spec(simulation={"params": {"policy": {"name": "static"}}}),
            ["spec.arms[1].simulation.params.policy.static.replicas: Field required"],
        ),
    ],
)  # fmt: skip
def test_errors_of_simulations_have_the_path_of_their_field(made: ExperimentSpec, found: list[str]) -> None:
    assert problems(made) == found


@pytest.mark.parametrize("values", [[1, 600], [600, 1], [600, 1, 2]])
def test_every_value_of_a_sweep_is_checked(values: list[int]) -> None:
    parameters = [
        {"name": "s", "path": "seconds", "values": values},
        {"name": "boot", "path": "bootSeconds", "values": [15, 120]},
    ]
    assert problems(spec(sweep={"parameters": parameters})) == [
        f"spec.arms[{arm}].simulation.params.seconds: Input should be greater than or equal to 60 (sweep: "
        "s=1, boot=15)"
        for arm in (0, 1)
    ]


@pytest.mark.parametrize(
    ("search", "wrong"),
    [
        ({"min": 50, "max": 90}, []),
        ({"min": 50, "max": 200_000}, ["200000.0: Input should be less than or equal to 100000"]),
        (
            {"type": "Categorical", "values": ["50", "high"]},
            ["'high': Input should be a valid number, unable to parse string as a number"],
        ),
    ],
)
def test_a_range_that_the_simulator_refuses_in_part_is_an_error(
    search: dict[str, Any], wrong: list[str]
) -> None:
    tuning = {"trials": 2, "search": [{"path": "policy.target", **search}]}
    assert problems(spec(simulation={"params": {"policy": {"name": "hpa"}}}, arm={"tuning": tuning})) == [
        f"spec.arms[1].tuning.search: policy.target: the simulator refuses the value {one}" for one in wrong
    ]


def test_a_path_is_tuned_only_once() -> None:
    search = [{"path": "policy.target", "min": 40, "max": most} for most in (60, 80)]
    assert problems(spec(arm={"tuning": {"trials": 2, "search": search}})) == [
        "spec.arms[1].tuning.search: policy.target: two parameters have this path; remove one"
    ]


def test_a_tuned_parameter_without_values_is_an_error() -> None:
    search = [{"path": "policy.target", "type": "Categorical", "values": []}]
    assert problems(spec(arm={"tuning": {"trials": 2, "search": search}})) == [
        "spec.arms[1].tuning.search: policy.target: values is empty; name at least one value"
    ]


def test_values_that_an_arm_takes_over_are_checked_before_the_first_block() -> None:
    tuning = {"trials": 2, "reuse": {"experiment": "before", "arm": "x"}}
    of = spec(simulation={"params": {"policy": {"name": "static"}}}, arm={"tuning": tuning})

    def problems_with(path: str, value: str) -> list[str]:
        return problems(of, [TuningStatus(arm="b", trials=2, values=[TunedValue(path=path, value=value)])])

    assert problems_with("policy.replicas", "3") == []
    (wrong,) = problems_with("policy.replicas", "-3")
    assert wrong.startswith(
        "spec.arms[1].tuning.reuse: with the values policy.replicas=-3: params.policy.static.replicas: "
    )
    (unknown,) = problems_with("policy.copies", "3")
    assert "params.policy.static.copies: Extra inputs are not permitted" in unknown
