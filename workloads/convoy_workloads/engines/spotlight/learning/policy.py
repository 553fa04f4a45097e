"""Policies: networks that give the velocity of a flow from noise (time 1) to samples (time 0)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from convoy_workloads.engines.spotlight.learning.attention import Block

FREQUENCIES = 4
PROMPT_WIDTH = 16
"""Number of features of a prompt."""


def time_features(times: Tensor) -> Tensor:
    """Return sines and cosines of the times, of shape [n, 2 x FREQUENCIES]."""
    angles = times[:, None] * (math.pi * 2.0 ** torch.arange(FREQUENCIES))
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Policy(nn.Module):
    """A network that depends on the point, the time and the prompt."""

    def forward(self, points: Tensor, times: Tensor, prompts: Tensor) -> Tensor:
        """Return the velocity at each point, of the same shape [n, size]."""
        raise NotImplementedError


class PointPolicy(Policy):
    """A network with two hidden layers for samples of few values. With a width of 96 it has 12 k weights."""

    def __init__(self, size: int, prompts: int, width: int) -> None:
        super().__init__()
        self.prompts = nn.Embedding(prompts, PROMPT_WIDTH)
        self.first = nn.Linear(size + 2 * FREQUENCIES + PROMPT_WIDTH, width)
        self.second = nn.Linear(width, width)
        self.last = nn.Linear(width, size)

    def forward(self, points: Tensor, times: Tensor, prompts: Tensor) -> Tensor:
        """Return the velocity at each point."""
        features = torch.cat([points, time_features(times), self.prompts(prompts)], dim=1)
        found: Tensor = self.last(F.silu(self.second(F.silu(self.first(features)))))
        return found


class PicturePolicy(Policy):
    """A transformer over pixels. Each pixel is a token; time and prompt are added to every token.

    Sequence parallelism splits the tokens. All but the attention of a block acts on each token alone.
    """

    def __init__(self, size: int, prompts: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.pixels = nn.Linear(1, width)
        self.positions = nn.Parameter(0.02 * torch.randn(size, width))
        self.times = nn.Linear(2 * FREQUENCIES, width)
        self.prompts = nn.Embedding(prompts, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, 1)

    def embed(self, points: Tensor, times: Tensor, prompts: Tensor) -> Tensor:
        """Return the tokens before the first block, of shape [n, size, width]."""
        conditions = self.times(time_features(times)) + self.prompts(prompts)
        tokens: Tensor = self.pixels(points[:, :, None]) + self.positions + conditions[:, None]
        return tokens

    def head(self, tokens: Tensor) -> Tensor:
        """Return the velocity of each token after the last block, of shape [n, tokens]."""
        found: Tensor = self.last(self.norm(tokens))
        return found[:, :, 0]

    def forward(self, points: Tensor, times: Tensor, prompts: Tensor) -> Tensor:
        """Return the velocity of each pixel."""
        tokens = self.embed(points, times, prompts)
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(tokens)
