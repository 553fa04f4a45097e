"""Tests that a policy sees no measurement before its lag is over."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_workloads.simulators.autoscaling import simulation
from convoy_workloads.simulators.autoscaling.policies.policy import ReplicaPolicy
from convoy_workloads.simulators.autoscaling.telemetry import Telemetry, View
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.run import run

CHANGE = 600
"""Second from which the load of two runs differs."""
SECONDS = 1080
POLICIES: tuple[dict[str, Any], ...] = (
    {"name": "hpa", "target": 50},
    {"name": "hpa", "metric": "inFlight", "target": 1},
    {"name": "forecast"},
    {"name": "threshold"},
    {"name": "q-learning", "trainingWindows": 0},
)
ORACLE = {"name": "oracle"}


class Recorded:
    """A policy whose decisions are recorded."""

    def __init__(self, policy: ReplicaPolicy, decisions: dict[int, int]) -> None:
        self.metrics = policy.metrics
        self._policy = policy
        self._decisions = decisions

    def decide(self, view: View) -> int:
        self._decisions[view.second] = decided = self._policy.decide(view)
        return decided


def decisions(
    monkeypatch: pytest.MonkeyPatch, policy: dict[str, Any], later: int, perturbation: Perturbation | None
) -> dict[int, int]:
    """Return the decisions of a run whose load is `later` requests per minute after the change."""
    found: dict[int, int] = {}
    make = simulation.make
    with monkeypatch.context() as patch:
        patch.setattr(simulation, "make", lambda *given: Recorded(make(*given), found))
        counts = [900 if minute * 60 < CHANGE else later for minute in range(SECONDS // 60)]
        workload = {"name": "trace", "counts": counts, "intervalSeconds": 60}
        params = {"policy": policy, "workload": workload, "seconds": SECONDS, "metricLagSeconds": 15}
        run("autoscaling", params, 11, perturbation)
    return found


def first_difference(
    monkeypatch: pytest.MonkeyPatch, policy: dict[str, Any], perturbation: Perturbation | None
) -> int:
    """Return the time of the first decision that depends on the load after the change."""
    same, other = (decisions(monkeypatch, policy, later, perturbation) for later in (900, 3000))
    return min(second for second in same if same[second] != other[second])


@pytest.mark.parametrize("policy", POLICIES, ids=lambda one: f"{one['name']}-{one.get('metric', '')}")
@pytest.mark.parametrize("lag", [0, 240])
def test_no_decision_depends_on_load_that_is_newer_than_the_lag(
    monkeypatch: pytest.MonkeyPatch, policy: dict[str, Any], lag: int
) -> None:
    disturbance = Perturbation.model_validate({"kind": "ObservationLag", "magnitude": lag}) if lag else None
    first = first_difference(monkeypatch, policy, disturbance)
    assert first > CHANGE + 15 + lag, "the policy reacts to load that it cannot have seen"
    assert first <= CHANGE + 15 + lag + 120, "the policy does not react at all"


def test_the_test_finds_a_policy_that_sees_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_difference(monkeypatch, ORACLE, None) < CHANGE


def test_a_view_has_the_mean_of_the_window_before_the_lag() -> None:
    telemetry = Telemetry(seed=1, lag=20, window=10)
    for second in range(60):
        telemetry.record(arrived=second, waiting=2 * second, cores=0.5, in_flight=1)
    seen = telemetry.view(60, [], ())
    assert (seen.rate, seen.waiting) == (34.5, 69)  # the seconds 30 to 39
    early = telemetry.view(29, [], ())
    assert (early.rate, early.waiting) == (None, None)
