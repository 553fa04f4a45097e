"""Tests of the networks and tables of learned policies."""

from __future__ import annotations

import itertools
import random

import pytest

from convoy_workloads.simulators.autoscaling.params import Params
from convoy_workloads.simulators.autoscaling.policies.params import QLearningPolicy
from convoy_workloads.simulators.autoscaling.policies.q_learning import QTable
from convoy_workloads.simulators.autoscaling.training import trained
from convoy_workloads.simulators.cost_curve import CostCurve
from convoy_workloads.simulators.learned_choice import learned_choice
from convoy_workloads.simulators.run import run
from convoy_workloads.simulators.scorer import Scorer, draw, initial_weights, probabilities, weight_count

SMALL = {"seconds": 900, "maxReplicas": 10}


def test_the_gradient_equals_finite_differences() -> None:
    chance = random.Random(1)
    weights = [chance.gauss(0, 1) for _ in range(weight_count(4, 3))]
    features = [chance.gauss(0, 1) for _ in range(4)]
    found = Scorer(4, 3, weights).gradient(features)
    for index in range(len(weights)):
        up, down = list(weights), list(weights)
        up[index] += 1e-5
        down[index] -= 1e-5
        slope = (Scorer(4, 3, up).score(features) - Scorer(4, 3, down).score(features)) / 2e-5
        assert found[index] == pytest.approx(slope, abs=1e-7)


def test_untrained_weights_prefer_no_candidate() -> None:
    scorer = Scorer(4, 3, initial_weights(4, 3, 7))
    assert scorer.score([1.0, -2.0, 3.0, 0.5]) == 0


def test_a_wrong_number_of_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="there must be 19 numbers, not 2"):
        Scorer(4, 3, [0.0, 0.0])


def test_random_choices_have_the_probabilities_of_the_scores() -> None:
    chances = probabilities([0.0, 1.0, 2.0])
    assert sum(chances) == pytest.approx(1)
    assert [draw(chances, one) for one in (0.0, 0.2, 0.5, 1.0)] == [0, 1, 2, 2]
    weights = [1.0, 0.0, 0.0, 0.0] + [0.0] * (weight_count(4, 3) - 4)
    rows = [[0.0] * 4, [1.0, 0.0, 0.0, 0.0]]
    assert learned_choice((4, 3), weights, 0.0, 1).choose(0.0, rows) == 1
    random_choice = learned_choice((4, 3), weights, 1.0, 1)
    picked = [random_choice.choose(0.0, rows) for _ in range(2000)]
    assert sum(picked) / len(picked) == pytest.approx(probabilities([0.0, 1.0])[1], abs=0.04)


def test_costs_from_a_time_equal_a_plain_sum() -> None:
    chance = random.Random(2)
    jobs = [
        (start := chance.uniform(0, 50), start + chance.uniform(1, 30), chance.random()) for _ in range(20)
    ]
    curve = CostCurve(jobs)
    for time in (0.0, 10.0, 33.3, 60.0, 100.0, jobs[3][0], jobs[3][1]):
        plain = sum(weight * max(0.0, end - max(arrival, time)) for arrival, end, weight in jobs)
        assert curve.cost_from(time) == pytest.approx(plain, abs=1e-9)
    assert curve.total == pytest.approx(curve.cost_from(0.0))


def test_the_table_learns_that_growing_is_cheaper() -> None:
    table = QTable(3)
    table.of((1, 9))[:] = [5.0, 1.0, 9.0]
    table.of((3, 0))[:] = [5.0, 9.0, 1.0]
    rows = table.frozen(60).actions
    assert (rows[0][9], rows[2][0], rows[1]) == ("+", "-", "=" * 10)


def test_training_is_repeatable_and_beats_an_untrained_table() -> None:
    policy = {"name": "q-learning", "trainingWindows": 12, "latePenalty": 5}
    first = trained(Params.model_validate({**SMALL, "policy": policy}))
    again = trained(Params.model_validate({**SMALL, "policy": policy}))
    assert first == again
    assert not isinstance(first.policy, QLearningPolicy)
    constant = {"name": "table", "actions": ["=" * 10] * 10}
    learned, idle = (
        sum(run("autoscaling", body, seed).figures["weightedCost"] for seed in range(4))
        for body in (first.to_dict(), {**SMALL, "policy": constant})
    )
    assert learned < idle


def test_a_table_changes_one_replica_at_a_time() -> None:
    growing = {"name": "table", "actions": ["+" * 10] * 10, "intervalSeconds": 60}
    figures = run("autoscaling", {**SMALL, "initialReplicas": 1, "policy": growing}, 1).figures
    assert figures["changes"] == 9


def test_the_threshold_policy_grows_under_load_and_shrinks_without() -> None:
    figures = [
        run(
            "autoscaling",
            {
                **SMALL,
                "workload": {"name": "bursty", "rate": rate, "burstsPerHour": 0},
                "policy": {"name": "threshold"},
            },
            1,
        ).figures["podHours"]
        for rate in (2, 10, 30)
    ]
    assert all(one < other for one, other in itertools.pairwise(figures))
