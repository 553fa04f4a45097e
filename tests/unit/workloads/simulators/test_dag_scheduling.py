"""Tests of the simulator dag-scheduling: conservation of work, its policies, and perturbations."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.dag_scheduling.learned import WEIGHTS, start_weights
from convoy_workloads.simulators.dag_scheduling.params import Params
from convoy_workloads.simulators.dag_scheduling.simulation import run_policy
from convoy_workloads.simulators.dag_scheduling.view import View
from convoy_workloads.simulators.dag_scheduling.workload import Workload, jobs
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.run import run
from convoy_workloads.simulators.simulator import InvalidSimulation, Outcome

WORKLOAD = {"jobs": 12, "meanIntervalSeconds": 12.0}
POLICIES: dict[str, dict[str, Any]] = {
    "fifo": {"name": "fifo"},
    "shortest-job": {"name": "shortest-job"},
    "longest-job": {"name": "longest-job"},
    "fair": {"name": "weighted-fair"},
    "small jobs": {"name": "weighted-fair", "exponent": -1.0, "limit": 0.4},
    "gang": {"name": "gang", "share": 0.4, "order": "shortest"},
    "learned": {"name": "learned", "weights": start_weights(1), "temperature": 1.0},
}
EACH = pytest.mark.parametrize("policy", POLICIES)


def simulate(policy: str, seed: int = 1, kind: str = "", magnitude: float = 0.0, **timing: float) -> Outcome:
    found = Perturbation(kind=PerturbationKind(kind), magnitude=magnitude, **timing) if kind else None
    return run("dag-scheduling", {"policy": POLICIES[policy], "workload": WORKLOAD}, seed, found)


def mean(policy: str, kind: str = "", magnitude: float = 0.0) -> float:
    return sum(simulate(policy, seed, kind, magnitude).figures["meanJobSeconds"] for seed in range(6)) / 6


@EACH
def test_every_policy_ends_all_jobs_under_every_perturbation(policy: str) -> None:
    undisturbed = simulate(policy).figures
    for kind, magnitude in (
        ("ObservationLag", 30),
        ("TelemetryNoise", 1),
        ("WorkloadShift", 3),
        ("Tenant", 0.5),
    ):
        found = simulate(policy, kind=kind, magnitude=magnitude).figures
        assert found["offered"] == undisturbed["offered"]
        assert found["meanSlowdown"] >= 1


@EACH
def test_equal_input_gives_equal_bits(policy: str) -> None:
    assert simulate(policy, kind="TelemetryNoise", magnitude=1) == simulate(
        policy, kind="TelemetryNoise", magnitude=1
    )


def test_no_job_is_faster_than_its_longest_path() -> None:
    params = Params.model_validate({"workload": WORKLOAD, "moveSeconds": 0})
    found = run_policy(params, params.policy.create(params.executors, 3), 3)
    for job, end in zip(found.jobs, found.cluster.ends, strict=True):
        assert end - job.arrival >= max(stage.path_seconds for stage in job.stages) - 1e-9


def test_executors_never_do_more_work_than_they_can() -> None:
    """The time of the last end is a bound for the work: 10 executors cannot do more in it."""
    figures = simulate("fifo").figures
    assert figures["offered"] <= figures["makespanSeconds"] * 10


def test_small_jobs_first_is_better_and_large_jobs_first_is_worse() -> None:
    assert mean("shortest-job") < mean("fair") < mean("longest-job")


def test_a_policy_that_measures_nothing_is_immune_to_a_lag() -> None:
    assert mean("fifo", "ObservationLag", 120) == mean("fifo")
    assert mean("small jobs", "ObservationLag", 120) != mean("small jobs")


def test_more_arrivals_and_a_tenant_slow_jobs_down() -> None:
    assert mean("fair") < mean("fair", "WorkloadShift", 2)
    assert mean("fair") < mean("fair", "Tenant", 0.5)


def test_achieved_magnitudes_are_measured() -> None:
    assert simulate("fair").achieved is None
    assert simulate("fair", kind="Tenant", magnitude=0.4, start=20, duration=40).achieved == pytest.approx(
        0.4, abs=0.1
    )
    lag = simulate("fair", kind="ObservationLag", magnitude=5).achieved
    assert lag is not None and 0 < lag <= 5
    noise = simulate("fair", kind="TelemetryNoise", magnitude=0.5).achieved
    assert noise == pytest.approx(0.5, rel=0.25)
    for kind in ("Tenant", "WorkloadShift", "ObservationLag"):
        assert simulate("fair", kind=kind, magnitude=0.9, start=80_000).achieved is None


def test_a_shift_changes_arrivals_only() -> None:
    before = jobs(Workload(jobs=5), 1)
    after = jobs(Workload(jobs=5), 1, lambda _: 2.0)
    assert [one.stages for one in after] == [one.stages for one in before]
    assert [one.arrival for one in after] == pytest.approx([one.arrival / 2 for one in before])


class Idle:
    """A policy that starts work only if it must."""

    def choose(self, view: View) -> int | None:
        return None if view.may_idle else 0


def test_a_policy_cannot_stop_the_cluster() -> None:
    params = Params.model_validate({"workload": WORKLOAD})
    assert run_policy(params, Idle(), 1).seconds < float("inf")


def test_wrong_weights_are_refused_with_their_path() -> None:
    with pytest.raises(InvalidSimulation, match=r"params\.policy\.learned\.weights.*76"):
        run("dag-scheduling", {"policy": {"name": "learned", "weights": [0.0]}}, 1)
    assert WEIGHTS == 76
