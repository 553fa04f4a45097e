"""Group relative policy optimisation (GRPO) of the steps of trajectories.

The advantage of a trajectory is its reward relative to those of the same prompt:

    (reward - mean) / (deviation + FLOOR)

Every step has a ratio of its own, between the probability under the trained weights and the one under the
weights that made the step. So trajectories of older weights, or of several versions, may be used. A penalty
keeps the steps close to those of the base policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from convoy_workloads.engines.spotlight.learning.policy import Policy
from convoy_workloads.engines.spotlight.learning.sampler import Sampler, Trajectory

FLOOR = 0.05
"""Added to the standard deviation of the rewards, so that noise of equal rewards is not amplified."""
CLIP = 0.2
"""Largest change of a step's probability, as a fraction, that is still rewarded."""
MAX_NORM = 1.0


@dataclass(frozen=True, slots=True)
class Scored:
    """A finished trajectory with its reward."""

    walk: Trajectory
    reward: float


@dataclass(frozen=True, slots=True)
class Batch:
    """The steps of all trajectories, in rows."""

    points: Tensor
    after: Tensor
    times: Tensor
    prompts: Tensor
    log_probs: Tensor
    """Logarithm of each step's probability under the weights that made it."""
    advantages: Tensor


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """Figures of one update."""

    reward: float
    """Mean reward of the trajectories."""
    loss: float
    kl: float
    """Mean divergence of a step from the base policy."""
    clipped: float
    """Share of the steps whose ratio was clipped."""
    zero_contrast: float
    """Share of the groups whose rewards are almost equal, so that they teach nothing."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Settings of the update."""

    learning_rate: float
    kl: float
    """Weight of the divergence from the base policy."""


def advantages(rewards: Sequence[float]) -> list[float]:
    """Return the advantages of one group."""
    values = np.asarray(rewards, np.float64)
    return [float(one) for one in (values - values.mean()) / (values.std() + FLOOR)]


def has_no_contrast(rewards: Sequence[float]) -> bool:
    """Return True if the rewards of a group are almost equal."""
    return float(np.std(rewards)) < FLOOR


def batch_of(sampler: Sampler, groups: Iterable[Sequence[Scored]]) -> Batch:
    """Return the steps of all groups. Raises ValueError if there is none."""
    walks, scores = [], []
    for group in groups:
        walks += [one.walk for one in group]
        scores += advantages([one.reward for one in group])
    if not walks:
        raise ValueError("there is no trajectory to train on")
    path = torch.from_numpy(np.stack([walk.path for walk in walks]))
    prompts = torch.tensor([walk.key.prompt for walk in walks])
    times = torch.tensor([sampler.time(step) for step in range(sampler.steps)])
    return Batch(
        points=path[:, :-1].flatten(0, 1),
        after=path[:, 1:].flatten(0, 1),
        times=times.repeat(len(walks)),
        prompts=prompts.repeat_interleave(sampler.steps),
        log_probs=torch.from_numpy(np.stack([walk.log_probs for walk in walks])).flatten(),
        advantages=torch.tensor(scores, dtype=torch.float32).repeat_interleave(sampler.steps),
    )


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks that train together. Each one computes the gradients of its groups."""

    rank: int = 0
    world: int = 1
    add_up: Callable[[Tensor], object] = lambda tensor: tensor
    """Replaces a tensor by its sum over all ranks."""


class Trainer:
    """The policy that is trained, its base policy and its optimizer."""

    def __init__(self, policy: Policy, base: Policy, sampler: Sampler, rates: Rates, ranks: Ranks) -> None:
        self.policy = policy
        self._base = base
        self._sampler = sampler
        self._kl = rates.kl
        self._ranks = ranks
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=rates.learning_rate)

    def update(self, groups: Sequence[Sequence[Scored]]) -> UpdateReport:
        """Take one step of the optimizer on the groups, each with trajectories of one prompt."""
        own = groups[self._ranks.rank :: self._ranks.world]
        share = sum(map(len, own)) / sum(map(len, groups))
        figures = torch.zeros(3)
        for parameter in self.policy.parameters():
            parameter.grad = torch.zeros_like(parameter)  # A rank without groups adds zeros.
        if own:
            loss, kl, ratio = self.loss(batch_of(self._sampler, own))
            (share * loss).backward()  # type: ignore[no-untyped-call]
            clipped = ((ratio - 1).abs() > CLIP).float().mean()
            figures = share * torch.stack([loss.detach(), kl, clipped])
        gradients = [one.grad for one in self.policy.parameters() if one.grad is not None]
        for tensor in (*gradients, figures):
            self._ranks.add_up(tensor)
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), MAX_NORM)
        self.optimizer.step()
        rewards = [[one.reward for one in group] for group in groups]
        return UpdateReport(
            reward=float(np.mean([reward for group in rewards for reward in group])),
            loss=float(figures[0]),
            kl=float(figures[1]),
            clipped=float(figures[2]),
            zero_contrast=float(np.mean([has_no_contrast(group) for group in rewards])),
        )

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss, the mean divergence from the base policy, and the ratio of each step."""
        mean = self._means(self.policy, batch)
        ratio = (self._sampler.log_prob(mean, batch.after) - batch.log_probs).exp()
        clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
        gain = torch.minimum(ratio * batch.advantages, clipped * batch.advantages).mean()
        with torch.no_grad():
            base = self._means(self._base, batch)
        kl = -self._sampler.log_prob(base, mean).mean()
        return self._kl * kl - gain, kl.detach(), ratio.detach()

    def _means(self, policy: Policy, batch: Batch) -> Tensor:
        velocity = policy(batch.points, batch.times, batch.prompts)
        return self._sampler.means(velocity, batch.points, batch.times)
