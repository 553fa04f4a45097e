"""Tests of the simulator recovery: its faults, and the figures of a job that recovers from them."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.recovery import SIMULATOR
from convoy_workloads.simulators.recovery.params import Params
from convoy_workloads.simulators.recovery.scenario import scenario
from convoy_workloads.simulators.run import run
from convoy_workloads.simulators.simulator import InvalidSimulation, Outcome

SMALL: dict[str, Any] = {
    "nodes": 3,
    "replicas": 2,
    "program": {"stepSeconds": 1, "totalSteps": 90},
    "checkpointInterval": "20s",
}


def simulate(perturbation: Perturbation | None = None, seed: int = 1, **params: Any) -> Outcome:
    return run("recovery", {**SMALL, **params}, seed, perturbation)


def perturbed(kind: str, magnitude: float, **more: Any) -> Perturbation:
    return Perturbation.model_validate({"kind": kind, "magnitude": magnitude, **more})


def test_an_undisturbed_job_loses_only_its_start_and_its_saves() -> None:
    found = simulate()
    assert found.figures.keys() == SIMULATOR.figures.keys()
    assert (found.figures["restarts"], found.figures["completedSteps"], found.censored) == (0, 90, ())
    # The first step counts as a part of the start.
    assert found.figures["seconds"] == pytest.approx(89 + found.figures["lostSeconds"])
    assert 0 < found.figures["lostSeconds"] < 8
    assert simulate() == found


@pytest.mark.parametrize(("kind", "most"), [("KillRank", 25), ("KillPod", 25), ("NodeLoss", 45)])
def test_a_fault_costs_a_restart_and_steps_since_the_checkpoint(kind: str, most: float) -> None:
    found = simulate(perturbed(kind, 1, start=30, duration=40))
    lost = found.figures["lostSeconds"] - simulate().figures["lostSeconds"]
    assert (found.figures["restarts"], found.figures["offeredFaults"], found.achieved) == (1, 1, 1)
    assert found.figures["completedSteps"] == 90
    assert 0.5 < lost < most


@pytest.mark.parametrize("kind", ["SlowRank", "SlowNode"])
def test_a_slow_rank_or_node_makes_the_steps_of_all_ranks_longer(kind: str) -> None:
    plain = simulate().figures["seconds"]
    found = simulate(perturbed(kind, 3, start=30, duration=30))
    # In 30 s there are 10 steps in place of 30, so 20 more seconds are needed.
    assert found.figures["seconds"] - plain == pytest.approx(20, abs=2)
    assert (found.achieved, found.figures["restarts"], found.figures["completedSteps"]) == (3, 0, 90)
    whole = simulate(perturbed(kind, 2))
    assert whole.figures["seconds"] - plain == pytest.approx(90, abs=2)


@pytest.mark.parametrize("kind", ["SlowRank", "SlowNode"])
def test_a_perturbation_after_the_end_has_no_achieved_magnitude(kind: str) -> None:
    found = simulate(perturbed(kind, 3, start=2000))
    assert (found.achieved, found.figures["seconds"]) == (None, simulate().figures["seconds"])


def test_a_slow_node_is_one_on_which_the_job_starts() -> None:
    params = Params.model_validate({"nodes": 12, "replicas": 3})
    chosen = {scenario(params, seed, perturbed("SlowNode", 2))[0].events[0].node for seed in range(40)}
    assert chosen == {"node-0", "node-1", "node-10"}


def test_both_settings_of_in_place_get_the_same_faults_and_new_pods_take_longer() -> None:
    kills = perturbed("KillRank", 2, start=20, duration=60)
    kept, replaced = (simulate(kills, recovery={"inPlace": chosen}) for chosen in (True, False))
    assert kept.figures["offeredFaults"] == replaced.figures["offeredFaults"] == 2
    assert kept.figures["lostSeconds"] < replaced.figures["lostSeconds"]
    assert kept.figures["goodput"] > replaced.figures["goodput"]


def test_a_job_that_fails_is_censored() -> None:
    found = simulate(
        perturbed("KillRank", 1, start=30, duration=10), recovery={"maxRestarts": 0}, seconds=300
    )
    assert found.censored == ("seconds",)
    assert found.figures["seconds"] == 300
    assert found.figures["completedSteps"] < 90


def test_faults_follow_from_the_seed_and_their_rate_and_a_perturbation_adds_to_them() -> None:
    params = Params.model_validate({"faults": {"killRank": 30, "nodeLoss": 6}, "seconds": 36_000})
    first, _ = scenario(params, 1, None)
    again, own = scenario(params, 1, perturbed("KillPod", 3, start=100, duration=50))
    other, _ = scenario(params, 2, None)
    kills = [event for event in first.events if event.do == "killRank"]
    assert len(kills) == pytest.approx(300, rel=0.2)
    assert {event.rank for event in kills} == {0, 1, 2, 3}
    assert first.events != other.events
    assert again.events[: len(first.events)] == first.events
    added = again.events[len(first.events) :]
    assert [again.events[number] for number in own] == added
    assert all(event.do == "deletePod" and 100 <= event.at <= 150 for event in added)
    assert len(added) == 3


def test_a_fault_without_a_target_is_offered_and_not_achieved() -> None:
    found = simulate(perturbed("KillRank", 4, start=0, duration=0.5))
    assert found.figures["offeredFaults"] == 4
    assert found.achieved == 0


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"replicas": 4}, "replicas: must be at most nodes, 3"),
        ({"replicas": 1}, "peerCopies"),
        ({"checkpointInterval": "soon"}, "params.checkpointInterval"),
        ({"recovery": {"inplace": True}}, "params.recovery.inplace"),
    ],
)
def test_invalid_parameters_are_named(params: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSimulation, match=words):
        simulate(**params)
