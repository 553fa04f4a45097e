"""The problem grid: small pictures. The data has several patterns of waves, and each prompt wants one."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from convoy_workloads.engines.spotlight.learning.problem import difficulties

SPREAD = 0.2
"""Standard deviation of the data around a pattern, in each pixel."""
TOLERANCE = 0.5
"""Root mean square of the pixels' errors at which the reward has fallen to exp(-1/2)."""
EASIEST, HARDEST = 0.4, 0.1
"""Share of the wanted pattern in the data of the easiest and of the hardest prompt."""


class Grid:
    """Pictures of `side` x `side` pixels. Prompt `p` wants the pattern `p` modulo their number."""

    def __init__(self, prompts: int, patterns: int, side: int) -> None:
        self.prompts = prompts
        self.size = side * side
        self._patterns = torch.stack([_waves(number, patterns, side) for number in range(patterns)])
        wanted = torch.tensor(difficulties(prompts, EASIEST, HARDEST))[:, None]
        shares = ((1 - wanted) / (patterns - 1)).expand(-1, patterns).clone()
        self._wanted = torch.arange(prompts) % patterns
        shares[torch.arange(prompts), self._wanted] = wanted[:, 0]
        self._shares = shares

    def examples(self, prompts: Tensor, generator: Generator) -> Tensor:
        """Return noisy patterns."""
        chosen = torch.multinomial(self._shares[prompts], 1, generator=generator)[:, 0]
        noise = torch.randn(len(prompts), self.size, generator=generator)
        return self._patterns[chosen] + SPREAD * noise

    def reward(self, prompts: Tensor, samples: Tensor) -> Tensor:
        """Return a bell of the root mean square of the differences from the wanted pattern."""
        away = (samples - self._patterns[self._wanted[prompts]]).square().mean(dim=1)
        return torch.exp(-away / (2 * TOLERANCE**2))


def _waves(number: int, patterns: int, side: int) -> Tensor:
    """Return a plane wave whose direction and length depend on `number`."""
    angle = math.pi * number / patterns
    waves = 1 + number % 3
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    along = math.cos(angle) * rows + math.sin(angle) * columns
    return torch.sin(2 * math.pi * waves * along / side).flatten()
