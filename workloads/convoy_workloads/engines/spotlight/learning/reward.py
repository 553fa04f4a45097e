"""Rewards of finished trajectories."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from convoy_workloads.engines.spotlight.learning.noise import NoiseKey
from convoy_workloads.engines.spotlight.learning.policy import Policy
from convoy_workloads.engines.spotlight.learning.problem import Problem
from convoy_workloads.engines.spotlight.learning.sampler import Sampler, Trajectory


def rewards(problem: Problem, walks: Sequence[Trajectory]) -> list[float]:
    """Return the reward of each trajectory."""
    prompts = torch.tensor([walk.key.prompt for walk in walks])
    samples = torch.from_numpy(np.stack([walk.sample for walk in walks]))
    return [float(one) for one in problem.reward(prompts, samples)]


class HeldOut:
    """Held-out samples. Their noise is never used for training, and it is the same in every evaluation."""

    def __init__(self, problem: Problem, sampler: Sampler, seeds: int, seed: int) -> None:
        self._problem, self._sampler = problem, sampler
        keys = [
            NoiseKey(f"held-out-{seed}", prompt, number, (number,))
            for prompt in range(problem.prompts)
            for number in range(seeds)
        ]
        self._walks = [sampler.start(key) for key in keys]

    def reward(self, policy: Policy) -> float:
        """Return the mean reward of the policy over all prompts."""
        walks = self._sampler.resume(policy, 0, self._walks)
        return float(np.mean(rewards(self._problem, walks)))
