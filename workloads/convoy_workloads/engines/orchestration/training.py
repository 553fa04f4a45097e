"""The training of the networks, on windows that no tuning and no test uses."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from convoy_crds.experiment_schedule import seed_of
from convoy_workloads.engines.orchestration.params import Params
from convoy_workloads.engines.orchestration.policy_gradient import Learner, Rollout, Settings, improve
from convoy_workloads.engines.orchestration.systems import System, base_params
from convoy_workloads.simulators.allocation import learned as allocation_policy
from convoy_workloads.simulators.allocation import simulation as allocation_run
from convoy_workloads.simulators.allocation.params import Params as AllocationParams
from convoy_workloads.simulators.cost_curve import CostCurve
from convoy_workloads.simulators.dag_scheduling import learned as dag_policy
from convoy_workloads.simulators.dag_scheduling import simulation as dag_run
from convoy_workloads.simulators.dag_scheduling.params import Params as DagParams
from convoy_workloads.simulators.learned_choice import LearnedChoice, Step, learned_choice

T = TypeVar("T")

TRAINING_STREAM, SELECTION_STREAM = 1_000_003, 2_000_003
"""Offsets of the study's seed for the windows of the training, and for the choice of a snapshot."""
SNAPSHOTS = 5
"""Number of snapshots of the weights, spread over the second half of the training, to choose from."""
SELECTION_WINDOWS = 12
"""Number of windows on which the snapshots are compared."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The weights of a trained network, and its learning curve."""

    weights: list[float]
    curve: list[float]
    """Mean cost of a run in each iteration, while decisions are random."""
    runs: int
    """Number of simulated runs."""


@dataclass(frozen=True, slots=True)
class Trainable:
    """A simulator with a learned policy."""

    shape: tuple[int, int]
    start_weights: Callable[[int], list[float]]
    run: Callable[[LearnedChoice, int], CostCurve]
    """Runs a window with the choice of a network, and returns the costs."""


def trainable(system: System, params: Params) -> Trainable | None:
    """Return the training task of a system; None if its simulator trains the policy itself."""
    base = base_params(system, params)
    match system.name:
        case "autoscaling":
            return None
        case "dag-scheduling":
            cluster = DagParams.model_validate(base)
            return Trainable(
                dag_policy.SHAPE,
                dag_policy.start_weights,
                lambda choice, seed: dag_run.run_policy(cluster, dag_policy.Learned(choice), seed).costs,
            )
        case "allocation":
            nodes = AllocationParams.model_validate(base)
            return Trainable(
                allocation_policy.SHAPE,
                allocation_policy.start_weights,
                lambda choice, seed: (
                    allocation_run.run_policy(nodes, allocation_policy.Learned(choice), seed).costs
                ),
            )


def start_weights(system: System, params: Params) -> list[float] | None:
    """Return the weights before the training; None if the simulator trains the policy itself."""
    task = trainable(system, params)
    return None if task is None else task.start_weights(params.seed)


def train(system: System, params: Params) -> Trained | None:
    """Train the network of a system; None if the simulator trains the policy itself.

    The result is the snapshot that does best, without random choices, on windows of its own.
    """
    task = trainable(system, params)
    if task is None:
        return None
    settings = Settings(rollouts=params.rollouts)
    learner = Learner(task.start_weights(params.seed))
    snapshots = []
    for iteration in range(params.iterations):
        window = seed_of(params.seed + TRAINING_STREAM, iteration)
        rollouts = [
            rollout(task, learner.weights, window, iteration * params.rollouts + number)
            for number in range(params.rollouts)
        ]
        improve(learner, task.shape, rollouts, settings, 1 - iteration / params.iterations)
        if iteration + 1 in _snapshot_iterations(params.iterations):
            snapshots.append(list(learner.weights))
    costs = [selection_cost(task, weights, params.seed) for weights in snapshots]
    best = min(range(len(snapshots)), key=costs.__getitem__)
    runs = params.iterations * params.rollouts + len(snapshots) * SELECTION_WINDOWS
    return Trained(snapshots[best], learner.curve, runs)


def rollout(task: Trainable, weights: list[float], window: int, draw_seed: int) -> Rollout:
    """Run a window with random decisions."""
    steps: list[Step] = []
    choice = learned_choice(task.shape, weights, 1.0, draw_seed)
    choice.steps = steps
    costs = task.run(choice, window)
    return Rollout(steps, costs.cost_from, costs.total)


def selection_cost(task: Trainable, weights: list[float], seed: int) -> float:
    """Return the mean cost of the windows of the selection, with the best decision each time."""
    costs = [
        task.run(learned_choice(task.shape, weights, 0.0, 0), seed_of(seed + SELECTION_STREAM, number)).total
        for number in range(SELECTION_WINDOWS)
    ]
    return math.fsum(costs) / len(costs)


def shuffled(items: Iterable[T], seed: int) -> list[T]:
    """Return the items, such as weights, in a random order."""
    order = list(items)
    random.Random(f"{seed}/shuffled").shuffle(order)  # noqa: S311 - must be repeatable
    return order


def _snapshot_iterations(iterations: int) -> set[int]:
    first = iterations / 2
    return {
        round(first + (iterations - first) * number / SNAPSHOTS) for number in range(1, SNAPSHOTS + 1)
    } - {0}
