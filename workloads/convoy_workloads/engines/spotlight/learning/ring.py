"""The problem ring: points in the plane. The data has modes on a circle, and each prompt wants one."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from convoy_workloads.engines.spotlight.learning.problem import difficulties

RADIUS = 2.0
SPREAD = 0.1
"""Standard deviation of the data around a mode."""
TOLERANCE = 0.3
"""Distance at which the reward has fallen to exp(-1/2)."""
EASIEST, HARDEST = 0.25, 0.01
"""Share of the wanted mode in the data of the easiest and of the hardest prompt."""


class Ring:
    """Modes on a circle. Prompt `p` wants the mode `p` modulo their number."""

    size = 2

    def __init__(self, prompts: int, modes: int) -> None:
        self.prompts = prompts
        angles = torch.arange(modes) * (2 * math.pi / modes)
        self._centres = RADIUS * torch.stack([angles.cos(), angles.sin()], dim=1)
        wanted = torch.tensor(difficulties(prompts, EASIEST, HARDEST))[:, None]
        shares = ((1 - wanted) / (modes - 1)).expand(-1, modes).clone()
        self._wanted = torch.arange(prompts) % modes
        shares[torch.arange(prompts), self._wanted] = wanted[:, 0]
        self._shares = shares

    def examples(self, prompts: Tensor, generator: Generator) -> Tensor:
        """Return points around the modes."""
        modes = torch.multinomial(self._shares[prompts], 1, generator=generator)[:, 0]
        noise = torch.randn(len(prompts), self.size, generator=generator)
        return self._centres[modes] + SPREAD * noise

    def reward(self, prompts: Tensor, samples: Tensor) -> Tensor:
        """Return a bell of the distance to the wanted mode."""
        away = (samples - self._centres[self._wanted[prompts]]).square().sum(dim=1)
        return torch.exp(-away / (2 * TOLERANCE**2))
