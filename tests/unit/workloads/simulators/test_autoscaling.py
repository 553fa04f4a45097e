"""Tests of the simulator autoscaling: its queue, its arrivals, its policies and its figures."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.autoscaling import SIMULATOR
from convoy_workloads.simulators.autoscaling.replicas import Replicas
from convoy_workloads.simulators.autoscaling.service import Service, late, quantile
from convoy_workloads.simulators.autoscaling.workload import BurstyWorkload, TraceWorkload, arrivals, rates
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.run import run
from convoy_workloads.simulators.simulator import InvalidSimulation, Outcome

STATIC = {"name": "static", "replicas": 4}
CONSTANT = {"name": "trace", "counts": [960, 960], "intervalSeconds": 60}
"""16 requests per second: 3.2 cores at the default service time."""


def simulate(
    policy: dict[str, Any], perturbation: Perturbation | None = None, seed: int = 3, **params: Any
) -> Outcome:
    body = {"seconds": 900, "initialReplicas": 4, **params, "policy": policy}
    return run("autoscaling", body, seed, perturbation)


def perturbed(kind: str, magnitude: float, **more: Any) -> Perturbation:
    return Perturbation.model_validate({"kind": kind, "magnitude": magnitude, **more})


# The queue


def test_requests_are_served_in_their_order_and_wait_for_those_before_them() -> None:
    service = Service(service_seconds=1.0, timeout_seconds=60)
    assert service.tick(0, 3, replicas=1, share=1.0) == 1
    assert service.waiting == 2
    service.tick(1, 0, replicas=1, share=1.0)
    service.tick(2, 0, replicas=1, share=1.0)
    assert service.empty
    # The requests arrive evenly within the first second, and one is served in each second.
    assert [one.latency for one in service.served] == pytest.approx([1 + 1 / 3, 2.0, 2 + 2 / 3])
    assert quantile(service, 0.5) == pytest.approx(2.0)


def test_requests_below_the_capacity_do_not_wait() -> None:
    service = Service(service_seconds=0.25, timeout_seconds=60)
    for second in range(10):
        service.tick(second, 3, replicas=1, share=1.0)
    assert {one.latency for one in service.served} == {0.25}


def test_a_tenant_slows_each_request() -> None:
    service = Service(service_seconds=0.25, timeout_seconds=60)
    assert service.tick(0, 10, replicas=1, share=0.5) == 2
    assert service.served[0].latency >= 0.5


def test_a_request_that_waits_too_long_is_lost_and_counts_as_late() -> None:
    service = Service(service_seconds=1.0, timeout_seconds=2)
    for second in range(5):
        service.tick(second, 10 if second == 0 else 0, replicas=1, share=1.0)
    assert (service.lost, service.empty) == (8, True)
    assert late(service, deadline=100) == 8
    assert quantile(service, 0.99) is None


def test_replicas_that_are_not_ready_are_deleted_first_then_the_youngest() -> None:
    replicas = Replicas()
    replicas.scale(2, 0, 0)
    replicas.scale(4, 10, 30)
    assert (replicas.ready(39), replicas.ready(40)) == (2, 4)
    replicas.scale(3, 20, 30)
    assert [one.number for one in replicas.present] == [0, 1, 2]
    replicas.scale(1, 100, 30)
    assert [one.number for one in replicas.present] == [0]
    assert replicas.pod_hours(100) * 3600 == 100 + 100 + 90 + 10


# The arrivals


def test_arrivals_follow_from_the_seed_and_have_the_mean_of_their_rates() -> None:
    workload = BurstyWorkload(rate=8, bursts_per_hour=20)
    expected = rates(workload, 3000, 1)
    assert arrivals(expected, 1) == arrivals(expected, 1) != arrivals(expected, 2)
    assert sum(arrivals(expected, 1)) == pytest.approx(sum(expected), rel=0.03)
    assert max(expected) > 2 * workload.rate


@pytest.mark.parametrize("rate", [0.5, 20, 49, 51, 400])
def test_the_numbers_of_a_second_have_the_variance_of_a_poisson_distribution(rate: float) -> None:
    found = arrivals([rate] * 4000, 5)
    mean = sum(found) / len(found)
    assert mean == pytest.approx(rate, rel=0.06)
    assert sum((one - mean) ** 2 for one in found) / len(found) == pytest.approx(rate, rel=0.12)


def test_the_seed_chooses_the_window_of_a_trace() -> None:
    trace = TraceWorkload(name="trace", counts=list(range(1, 101)), interval_seconds=10, scale=10)
    windows = {tuple(rates(trace, 50, seed)[::10]) for seed in range(20)}
    assert len(windows) > 10
    assert all(window == tuple(window[0] + step for step in range(5)) for window in windows)
    short = TraceWorkload(name="trace", counts=[10, 20], interval_seconds=10)
    assert rates(short, 40, 1)[::10] == [1, 2, 1, 2]


# The policies


def test_the_autoscaler_keeps_the_replicas_that_its_target_needs() -> None:
    """3.2 cores at a target of 80 % need 4 replicas. 10 shrink to them after the stabilization window."""
    hours = simulate({"name": "hpa", "target": 80}, workload=CONSTANT, initialReplicas=10).figures["podHours"]
    assert 10 * 300 + 4 * 570 < 3600 * hours < 10 * 330 + 5.5 * 600
    twice = simulate({"name": "hpa", "target": 40}, workload=CONSTANT, initialReplicas=10).figures["podHours"]
    assert 8 * 900 < 3600 * twice < 11 * 900


@pytest.mark.parametrize(
    "policy",
    [{"name": "hpa", "metric": "inFlight", "target": 1}, {"name": "forecast"}, {"name": "oracle"}],
    ids=lambda policy: str(policy["name"]),
)
def test_a_policy_grows_until_no_request_is_late(policy: dict[str, Any]) -> None:
    found = simulate(policy, workload=CONSTANT, initialReplicas=1).figures
    starved = simulate({"name": "static", "replicas": 1}, workload=CONSTANT).figures
    assert found["latePercent"] < 15
    assert starved["latePercent"] > 90
    assert found["lost"] < starved["lost"]


def test_behavior_limits_the_speed_of_changes() -> None:
    slow = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}]}}
    fast = simulate({"name": "hpa"}, workload=CONSTANT, initialReplicas=1).figures
    limited = simulate({"name": "hpa", "behavior": slow}, workload=CONSTANT, initialReplicas=1).figures
    assert limited["latePercent"] > fast["latePercent"] + 10


def test_an_oracle_is_a_bound_for_policies_that_see_only_the_past() -> None:
    costs = {
        name: simulate({"name": name}, seconds=1800).figures["weightedCost"]
        for name in ("oracle", "hpa", "forecast", "random")
    }
    assert costs["oracle"] == min(costs.values())


# The figures


def test_requests_are_the_same_for_all_policies_and_figures_for_the_same_seed() -> None:
    kinds = sorted(SIMULATOR.perturbations)
    for kind in (None, *kinds):
        disturbance = perturbed(kind, 2 if kind == "WorkloadShift" else 0.5) if kind else None
        found = [
            simulate(policy, disturbance, seconds=300)
            for policy in (STATIC, {"name": "hpa"}, {"name": "oracle"})
        ]
        assert len({one.figures["offered"] for one in found}) == 1
    assert simulate({"name": "hpa"}) == simulate({"name": "hpa"}) != simulate({"name": "hpa"}, seed=4)


def test_every_figure_is_declared() -> None:
    assert simulate(STATIC, seconds=60).figures.keys() == SIMULATOR.figures.keys()


def test_the_slowest_requests_are_censored_if_they_are_lost() -> None:
    found = simulate({"name": "static", "replicas": 1}, timeoutSeconds=20)
    assert found.censored == ("p99Seconds",)
    assert found.figures["p99Seconds"] == 20
    assert simulate({"name": "static", "replicas": 40}).censored == ()


def test_a_run_without_requests_has_figures() -> None:
    empty = {"name": "trace", "counts": [0, 0]}
    assert simulate({"name": "hpa"}, workload=empty).figures["latePercent"] == 0


# The perturbations


@pytest.mark.parametrize(
    ("kind", "magnitude", "tolerance"),
    [
        ("ObservationLag", 60, 0.0),
        ("TelemetryNoise", 0.3, 0.1),
        ("TelemetryLoss", 0.4, 0.1),
        ("WorkloadShift", 2.0, 0.05),
        ("Tenant", 0.5, 0.0),
        ("BootDelay", 45, 0.0),
    ],
)
def test_the_achieved_magnitude_is_measured(kind: str, magnitude: float, tolerance: float) -> None:
    found = simulate({"name": "hpa"}, perturbed(kind, magnitude, start=100, duration=600))
    assert found.achieved == pytest.approx(magnitude, rel=tolerance)
    never = simulate({"name": "hpa"}, perturbed(kind, magnitude, start=5000))
    assert never == Outcome(simulate({"name": "hpa"}).figures, never.censored, None)


@pytest.mark.parametrize("kind", sorted(SIMULATOR.perturbations))
def test_the_neutral_magnitude_changes_nothing(kind: PerturbationKind) -> None:
    neutral = 1 if kind is PerturbationKind.WORKLOAD_SHIFT else 0
    assert simulate({"name": "hpa"}, perturbed(kind, neutral)).figures == simulate({"name": "hpa"}).figures


def test_a_perturbation_harms_a_policy_that_depends_on_what_it_disturbs() -> None:
    hpa = simulate({"name": "hpa", "target": 60}, seconds=1800).figures["latePercent"]
    for kind, magnitude in (("ObservationLag", 120), ("BootDelay", 180), ("Tenant", 0.5)):
        disturbed = simulate({"name": "hpa", "target": 60}, perturbed(kind, magnitude), seconds=1800)
        assert disturbed.figures["latePercent"] > hpa, kind
    fixed = simulate(STATIC).figures
    for kind in ("ObservationLag", "TelemetryNoise", "TelemetryLoss", "BootDelay"):
        assert simulate(STATIC, perturbed(kind, 1)).figures == fixed, kind


def test_a_tenant_hides_the_load_from_an_autoscaler_with_a_high_target() -> None:
    found = simulate({"name": "hpa", "target": 80}, perturbed("Tenant", 0.3), initialReplicas=2).figures
    assert found["changes"] == 0
    assert found["latePercent"] > 90


# Invalid input


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"policy": {"name": "hpaa"}}, "params.policy"),
        ({"policy": {"name": "static"}}, "params.policy.static.replicas: Field required"),
        ({"policy": {"name": "hpa", "horizon": 1}}, "params.policy.hpa.horizon"),
        ({"minReplicas": 9, "maxReplicas": 8}, "minReplicas: must be at most maxReplicas, 8"),
        ({"initialReplicas": 41}, "initialReplicas"),
        ({"deadlineSeconds": 61}, "deadlineSeconds"),
        ({"seconds": 10}, "params.seconds"),
    ],
)
def test_invalid_parameters_are_named(params: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSimulation, match=words):
        run("autoscaling", params, 1)


def test_an_unknown_simulator_and_a_perturbation_that_it_does_not_have_are_named() -> None:
    with pytest.raises(InvalidSimulation, match="did you mean 'autoscaling'"):
        run("autoscalin", {}, 1)
    with pytest.raises(InvalidSimulation, match=r"perturbation.kind: simulator autoscaling .* KillRank"):
        run("autoscaling", {}, 1, perturbed("KillRank", 1))
    with pytest.raises(ValueError, match="Tenant must be from 0 to 0"):
        perturbed("Tenant", 1)
    with pytest.raises(ValueError, match="magnitude: KillRank must be a whole number"):
        perturbed("KillRank", 1.5)
