"""Tests of the training by policy gradient."""

from __future__ import annotations

import pytest

from convoy_workloads.engines.orchestration.policy_gradient import Learner, Rollout, Settings, improve
from convoy_workloads.simulators.learned_choice import Step, learned_choice
from convoy_workloads.simulators.scorer import Scorer, initial_weights, probabilities

SHAPE = (2, 2)
ROWS = [[1.0, 0.0], [0.0, 1.0]]


def rollout(learner: Learner, seed: int) -> Rollout:
    """Choose once. The first candidate costs 2, the second one 1."""
    choice = learned_choice(SHAPE, learner.weights, 1.0, seed)
    steps: list[Step] = []
    choice.steps = steps
    cost = 2.0 - choice.choose(0.0, ROWS)
    return Rollout(steps, lambda _: cost, cost)


def chance_of_the_cheap_one(learner: Learner) -> float:
    scorer = Scorer(*SHAPE, learner.weights)
    return probabilities([scorer.score(row) for row in ROWS])[1]


def train(iterations: int, seed: int = 1) -> Learner:
    learner = Learner(initial_weights(*SHAPE, seed))
    for number in range(iterations):
        rollouts = [rollout(learner, number * 10 + one) for one in range(6)]
        improve(learner, SHAPE, rollouts, Settings(learning_rate=0.1), 1 - number / iterations)
    return learner


def test_the_cheaper_candidate_becomes_likely() -> None:
    assert chance_of_the_cheap_one(train(0)) == pytest.approx(0.5)
    learner = train(60)
    assert chance_of_the_cheap_one(learner) > 0.9
    assert learner.curve[-1] < learner.curve[0] or learner.curve[0] == 1.0


def test_training_is_repeatable() -> None:
    assert train(5).weights == train(5).weights


def test_equal_costs_teach_nothing() -> None:
    learner = train(0)
    before = chance_of_the_cheap_one(learner)
    steps = [Step(0.0, ROWS, [0.5, 0.5], one) for one in (0, 1)]
    rollouts = [Rollout([step], lambda _: 1.0, 1.0) for step in steps]
    improve(learner, SHAPE, rollouts, Settings(entropy=0.0), 1.0)
    assert chance_of_the_cheap_one(learner) == pytest.approx(before)
