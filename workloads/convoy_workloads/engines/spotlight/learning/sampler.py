"""The sampler: a random walk from noise to a sample, whose steps have known probabilities.

The flow moves a point x from time t = 1 (noise) to t = 0 (sample) with the velocity v(x, t) of the policy. To
make the steps random, the walk follows the stochastic differential equation with the same marginals. One step
of length dt goes to a normal distribution with the mean

    x - (v + sigma^2 / (2 t) (x + (1 - t) v)) dt        and the standard deviation      sigma sqrt(dt).

(Flow-GRPO, J. Liu et al., 2025, derives this form from the score x + (1 - t) v of a linear path.)

A trajectory depends on its noise key and the weights alone, to the bit. So a worker may stop after any step,
and another may go on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from convoy_workloads.engines.spotlight.learning.noise import Floats, NoiseKey, start_noise, step_noise
from convoy_workloads.engines.spotlight.learning.policy import Policy

TILE = 16
"""Batches are padded to a multiple of this many rows. Matrix products of one or a few rows use other kernels
with other bits.
"""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A walk, finished or not."""

    key: NoiseKey
    path: Floats
    """Points, of shape [finished steps + 1, size]."""
    log_probs: Floats
    """Logarithm of the probability of each finished step, without the constant."""
    versions: tuple[int, ...]
    """Version of the weights of each finished step."""

    @property
    def step(self) -> int:
        """Return the number of finished steps."""
        return len(self.versions)

    @property
    def sample(self) -> Floats:
        """Return the last point."""
        last: Floats = self.path[-1]
        return last


@dataclass(frozen=True, slots=True)
class Sampler:
    """Settings of the walk."""

    steps: int
    sigma: float
    size: int

    def start(self, key: NoiseKey) -> Trajectory:
        """Return a walk without a step."""
        latent = start_noise(key, self.size)
        return Trajectory(key, latent[None], np.zeros(0, np.float32), ())

    @torch.no_grad()
    def resume(
        self, policy: Policy, version: int, walks: Sequence[Trajectory], until: int | None = None
    ) -> list[Trajectory]:
        """Continue walks until `until` steps are finished; None for all steps. The walks may be at different
        steps. The result has the same bits whatever other walks are in the batch.
        """
        last = self.steps if until is None else until
        open_rows = [row for row, walk in enumerate(walks) if walk.step < last]
        if not open_rows:
            return list(walks)
        chosen = [walks[row] for row in open_rows]
        started = np.array([walk.step for walk in chosen])
        path = np.zeros((len(chosen), last + 1, self.size), np.float32)
        log_probs = np.zeros((len(chosen), last), np.float32)
        for row, walk in enumerate(chosen):
            path[row, : walk.step + 1], log_probs[row, : walk.step] = walk.path, walk.log_probs
        noise = np.stack([step_noise(walk.key, last, self.size) for walk in chosen])
        prompts = torch.tensor([walk.key.prompt for walk in chosen])
        for step in range(int(started.min()), last):
            rows = np.flatnonzero(started <= step)
            points = torch.from_numpy(path[rows, step])
            times = torch.full((len(rows),), self.time(step))
            mean = self.means(_padded(policy, points, times, prompts[rows]), points, times)
            after = mean + self.deviation * torch.from_numpy(noise[rows, step])
            path[rows, step + 1] = after.numpy()
            log_probs[rows, step] = self.log_prob(mean, after).numpy()
        found = list(walks)
        for place, (row, walk) in enumerate(zip(open_rows, chosen, strict=True)):
            versions = walk.versions + (version,) * (last - walk.step)
            found[row] = Trajectory(walk.key, path[place], log_probs[place], versions)
        return found

    def time(self, step: int) -> float:
        """Return the time at the beginning of a step: 1 for step 0."""
        return 1 - step / self.steps

    @property
    def deviation(self) -> float:
        """Return the standard deviation of a step."""
        return self.sigma / math.sqrt(self.steps)

    def means(self, velocity: Tensor, points: Tensor, times: Tensor) -> Tensor:
        """Return the means of the steps from these points."""
        t = times[:, None]
        drift = velocity + self.sigma**2 / (2 * t) * (points + (1 - t) * velocity)
        return points - drift / self.steps

    def log_prob(self, mean: Tensor, after: Tensor) -> Tensor:
        """Return the logarithm of the probability density of steps, without the constant."""
        return -(after - mean).square().sum(dim=1) / (2 * self.deviation**2)


def _padded(policy: Policy, points: Tensor, times: Tensor, prompts: Tensor) -> Tensor:
    """Return the velocities, computed in a batch whose number of rows is a multiple of TILE."""
    missing = -len(points) % TILE
    if missing:
        points = torch.cat([points, points.new_zeros(missing, points.shape[1])])
        times = torch.cat([times, times.new_ones(missing)])
        prompts = torch.cat([prompts, prompts.new_zeros(missing)])
    found: Tensor = policy(points, times, prompts)
    return found[: len(found) - missing]
