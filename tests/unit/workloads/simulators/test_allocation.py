"""Tests of the simulator allocation: sizes, orders, jobs that run out of memory, and perturbations."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.allocation.learned import start_weights
from convoy_workloads.simulators.allocation.sizing import DecayingHistogram, MovingWindow
from convoy_workloads.simulators.allocation.telemetry import Telemetry
from convoy_workloads.simulators.allocation.workload import Amount, Job
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.run import run
from convoy_workloads.simulators.simulator import Outcome

WORKLOAD = {"jobs": 40}
POLICIES: dict[str, dict[str, Any]] = {
    "requests": {"name": "ordered"},
    "shortest": {"name": "ordered", "order": "shortest"},
    "longest": {"name": "ordered", "order": "longest"},
    "vpa": {"name": "ordered", "order": "packing", "sizing": {"name": "vpa"}},
    "short memory": {
        "name": "ordered",
        "order": "packing",
        "sizing": {"name": "vpa", "halfLifeSeconds": 200},
    },
    "autopilot": {"name": "ordered", "sizing": {"name": "autopilot", "samples": 10}},
    "oracle": {"name": "ordered", "order": "shortest", "sizing": {"name": "oracle"}},
    "learned": {"name": "learned", "weights": start_weights(1), "temperature": 1.0},
}
EACH = pytest.mark.parametrize("policy", POLICIES)


def simulate(policy: str, seed: int = 1, kind: str = "", magnitude: float = 0.0, **timing: float) -> Outcome:
    found = Perturbation(kind=PerturbationKind(kind), magnitude=magnitude, **timing) if kind else None
    return run("allocation", {"policy": POLICIES[policy], "workload": WORKLOAD}, seed, found)


def mean(policy: str, kind: str = "", magnitude: float = 0.0, figure: str = "meanSlowdown") -> float:
    return sum(simulate(policy, seed, kind, magnitude).figures[figure] for seed in range(6)) / 6


@EACH
def test_every_policy_ends_all_jobs_under_every_perturbation(policy: str) -> None:
    undisturbed = simulate(policy).figures
    for kind, magnitude in (
        ("ObservationLag", 900),
        ("TelemetryNoise", 1),
        ("WorkloadShift", 3),
        ("Tenant", 0.9),
    ):
        found = simulate(policy, kind=kind, magnitude=magnitude).figures
        assert found["offered"] == undisturbed["offered"]
        assert found["meanSlowdown"] >= 1


@EACH
def test_equal_input_gives_equal_bits(policy: str) -> None:
    assert simulate(policy, kind="TelemetryNoise", magnitude=1) == simulate(
        policy, kind="TelemetryNoise", magnitude=1
    )


def test_the_oracle_bounds_all_others() -> None:
    best = mean("oracle")
    assert all(best < mean(policy) for policy in POLICIES if policy != "oracle")
    assert mean("oracle", figure="kills") == 0
    assert mean("oracle", figure="slackPercent") == pytest.approx(0, abs=1e-9)


def test_long_jobs_first_is_worse() -> None:
    assert mean("shortest") < mean("requests") < mean("longest")


def test_only_policies_that_measure_suffer_from_a_lag() -> None:
    assert mean("requests", "ObservationLag", 1800) == mean("requests")
    assert mean("short memory", "ObservationLag", 900, "kills") > mean("short memory", figure="kills")


def test_load_and_a_tenant_slow_jobs_down() -> None:
    assert mean("vpa") < mean("vpa", "WorkloadShift", 2)
    assert mean("vpa") < mean("vpa", "Tenant", 0.4)


def test_achieved_magnitudes_are_measured() -> None:
    assert simulate("vpa").achieved is None
    assert simulate("vpa", kind="ObservationLag", magnitude=60).achieved == 60
    assert simulate("vpa", kind="TelemetryNoise", magnitude=0.5).achieved == pytest.approx(0.5, rel=0.4)
    for kind in ("Tenant", "WorkloadShift", "ObservationLag"):
        assert simulate("vpa", kind=kind, magnitude=0.9, start=80_000).achieved is None


def job(kind: int = 0) -> Job:
    return Job(0.0, kind, 1.0, 1.0, Amount(1.0, 1.0), Amount(9.0, 9.0), 0.5)


def test_a_rule_reserves_the_request_until_it_has_measurements() -> None:
    telemetry = Telemetry(None, 1)
    for rule in (DecayingHistogram(90, 0.0, 60), MovingWindow(10, 0.0)):
        assert rule.reserve(job(), telemetry, 0.0) == Amount(9.0, 9.0)


def test_old_measurements_weigh_less() -> None:
    telemetry = Telemetry(None, 1)
    for second in range(10):
        telemetry.record(float(second), 0, Amount(4.0, 4.0))
    for second in range(100, 110):
        telemetry.record(float(second), 0, Amount(1.0, 1.0))
    assert DecayingHistogram(90, 0.0, 10.0).reserve(job(), telemetry, 200.0).cores < 1.1
    assert DecayingHistogram(90, 0.0, 86_400.0).reserve(job(), telemetry, 200.0).cores > 3.9
    assert MovingWindow(10, 0.5).reserve(job(), telemetry, 200.0) == Amount(1.5, 1.5)


def test_a_lag_hides_the_newest_measurements() -> None:
    telemetry = Telemetry(Perturbation(kind=PerturbationKind.OBSERVATION_LAG, magnitude=50), 1)
    for second in (0.0, 10.0, 60.0):
        telemetry.record(second, 0, Amount(1.0, 1.0))
    assert telemetry.count(70.0, 0) == 2
