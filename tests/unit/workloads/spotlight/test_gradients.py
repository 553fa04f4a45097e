"""Tests of the gradient under each selection, on a linear policy whose true gradient is known.

One step goes from the start x to a x - w + d z, and the reward is the end. So the expected reward changes by
-1 with the weight w, whatever the starts are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from convoy_workloads.engines.spotlight.learning.grpo import (
    FLOOR,
    Ranks,
    Rates,
    Scored,
    Trainer,
    batch_of,
)
from convoy_workloads.engines.spotlight.learning.noise import NoiseKey
from convoy_workloads.engines.spotlight.learning.policy import Policy
from convoy_workloads.engines.spotlight.learning.sampler import Sampler
from convoy_workloads.engines.spotlight.params import Selection
from convoy_workloads.engines.spotlight.selection import max_variance
from convoy_workloads.engines.spotlight.workers import noise_key
from convoy_workloads.spot.ledger.request import Request, RequestKind

GROUPS, SIZE, EXPLORED = 12, 100, 300
SAMPLER = Sampler(steps=1, sigma=0.8, size=1)


class Shift(Policy):
    """A velocity that is the same everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, points: Tensor, times: Tensor, prompts: Tensor) -> Tensor:
        return self.weight.expand(points.shape)


def sample(policy: Policy, seeds: list[int], kind: RequestKind, selection: Selection) -> list[Scored]:
    requests = [Request("job", 1, 0, seed, kind, 0) for seed in seeds]
    walks = [SAMPLER.start(noise_key(one, selection)) for one in requests]
    return [Scored(walk, float(walk.sample[0])) for walk in SAMPLER.resume(policy, 0, walks)]


def estimate(selection: Selection, number: int) -> float:
    """Return the estimate of one group, without the scale of its advantages."""
    policy = Shift()
    seeds = list(range(number * EXPLORED, (number + 1) * EXPLORED))
    chosen = seeds[:SIZE]
    if selection != "none":
        explored = sample(policy, seeds, RequestKind.EXPLORE, selection)
        chosen = [seeds[place] for place in max_variance([one.reward for one in explored], SIZE)]
    group = sample(policy, chosen, RequestKind.ROLLOUT, selection)
    trainer = Trainer(policy, Shift(), SAMPLER, Rates(0.1, 0.0), Ranks())
    loss, _, _ = trainer.loss(batch_of(SAMPLER, [group]))
    loss.backward()
    assert policy.weight.grad is not None
    scale = float(np.std([one.reward for one in group])) + FLOOR
    return -float(policy.weight.grad) * scale * SIZE / (SIZE - 1)


def estimates(selection: Selection) -> tuple[float, float]:
    """Return the mean and the standard error."""
    found = [estimate(selection, number) for number in range(GROUPS)]
    return float(np.mean(found)), float(np.std(found, ddof=1) / GROUPS**0.5)


@pytest.mark.parametrize("selection", ["none", "initialLatent"])
def test_fresh_noise_of_the_steps_gives_the_true_gradient(selection: Selection) -> None:
    mean, error = estimates(selection)
    assert error < 0.1
    assert abs(mean + 1) < 4 * error


def test_a_selection_by_all_noise_is_biased() -> None:
    mean, error = estimates("fullSeed")
    assert mean + 1 < -5 * error


def trained(groups: list[list[Scored]], ranks: Ranks) -> list[Tensor]:
    """Return the weights after one update."""
    policy = Shift()
    Trainer(policy, Shift(), SAMPLER, Rates(0.1, 0.01), ranks).update(groups)
    return [policy.weight.detach()]


def test_ranks_share_the_gradients_of_one_update() -> None:
    groups = [
        sample(Shift(), [5 * one + two for two in range(5)], RequestKind.ROLLOUT, "none") for one in range(3)
    ]
    parts: list[list[Tensor]] = []
    for rank in range(2):
        seen: list[Tensor] = []
        trained(groups, Ranks(rank, 2, lambda tensor, seen=seen: seen.append(tensor.clone())))
        parts.append(seen)
    sums = iter([one + other for one, other in zip(*parts, strict=True)])
    shared = trained(groups, Ranks(0, 2, lambda tensor: tensor.copy_(next(sums))))
    torch.testing.assert_close(shared, trained(groups, Ranks()))


def test_a_step_that_became_too_likely_is_not_rewarded_further() -> None:
    policy = Shift()
    trainer = Trainer(policy, Shift(), SAMPLER, Rates(0.1, 0.0), Ranks())
    walk = SAMPLER.resume(policy, 0, [SAMPLER.start(NoiseKey("job", 0, 1, (1,)))])[0]
    batch = batch_of(SAMPLER, [[Scored(walk, 1.0), Scored(walk, 0.0)]])
    likely = replace(batch, log_probs=batch.log_probs - 1)
    loss, _, ratio = trainer.loss(likely)
    loss.backward()
    assert (ratio > 1.2).all()
    gain_of_good = 1.2 * batch.advantages[0]
    expected = float(gain_of_good + ratio[1] * batch.advantages[1]) / 2
    assert -loss.item() == pytest.approx(expected, rel=1e-4)
