"""Training of a `Scorer` by policy gradient (REINFORCE), as in Decima and DeepRM.

In each iteration, several runs of the same window draw their decisions at random. A decision's cost is the
cost of the run from this decision on. Its baseline is the mean of the same quantity over the other runs of
the window: the jobs are the same, so the difference comes from the decisions (Decima's baseline that depends
on the input).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from convoy_workloads.simulators.learned_choice import Step
from convoy_workloads.simulators.scorer import Scorer


@dataclass(frozen=True, slots=True)
class Rollout:
    """One run with random decisions."""

    steps: list[Step]
    cost_from: Callable[[float], float]
    """Returns the cost of the run from a time on."""
    cost: float
    """Cost of the whole run, in the unit of the reported curve."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the training."""

    rollouts: int = 6
    learning_rate: float = 0.03
    entropy: float = 0.02
    """Weight of the entropy of the decisions at the first iteration. It falls to 0 at the last one."""


@dataclass(slots=True)
class Learner:
    """The weights and the state of Adam."""

    weights: list[float]
    iteration: int = 0
    curve: list[float] = field(default_factory=list)
    """Mean cost of the rollouts in each iteration."""
    mean: list[float] = field(default_factory=list)
    square: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mean = self.mean or [0.0] * len(self.weights)
        self.square = self.square or [0.0] * len(self.weights)

    def update(self, gradient: Sequence[float], rate: float) -> None:
        """Make one step of Adam towards a larger reward."""
        self.iteration += 1
        first, second = 1 - 0.9**self.iteration, 1 - 0.999**self.iteration
        for index, slope in enumerate(gradient):
            self.mean[index] = 0.9 * self.mean[index] + 0.1 * slope
            self.square[index] = 0.999 * self.square[index] + 0.001 * slope * slope
            step = (self.mean[index] / first) / (math.sqrt(self.square[index] / second) + 1e-8)
            self.weights[index] += rate * step


def improve(
    learner: Learner, shape: tuple[int, int], rollouts: Sequence[Rollout], settings: Settings, left: float
) -> None:
    """Make one iteration. `left` is the share of the training that is left, from 1 to 0."""
    learner.curve.append(math.fsum(one.cost for one in rollouts) / len(rollouts))
    advantages = [
        [-(one.cost_from(step.now) - _baseline(rollouts, step.now)) for step in one.steps] for one in rollouts
    ]
    count = sum(map(len, advantages))
    if not count:
        learner.iteration += 1
        return
    spread = math.sqrt(math.fsum(one * one for row in advantages for one in row) / count) or 1.0
    scorer = Scorer(*shape, learner.weights)
    total = [0.0] * len(learner.weights)
    for one, row in zip(rollouts, advantages, strict=True):
        for step, advantage in zip(one.steps, row, strict=True):
            _add_gradient(total, scorer, step, advantage / spread, settings.entropy * left)
    learner.update([one / count for one in total], settings.learning_rate * max(left, 0.1))


def _baseline(rollouts: Sequence[Rollout], time: float) -> float:
    return math.fsum(one.cost_from(time) for one in rollouts) / len(rollouts)


def _add_gradient(total: list[float], scorer: Scorer, step: Step, advantage: float, entropy: float) -> None:
    """Add the gradient of a decision's log-probability, times its advantage, and that of the entropy."""
    logs = [math.log(max(one, 1e-12)) for one in step.chances]
    disorder = -math.fsum(one * log for one, log in zip(step.chances, logs, strict=True))
    for index, (row, chance, log) in enumerate(zip(step.rows, step.chances, logs, strict=True)):
        weight = advantage * ((index == step.chosen) - chance) - entropy * chance * (log + disorder)
        if abs(weight) < 1e-9:  # Its part of the gradient is far below the noise of the rollouts.
            continue
        for position, slope in enumerate(scorer.gradient(row)):
            total[position] += weight * slope
