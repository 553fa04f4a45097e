"""A small diffusion transformer (DiT): blocks whose normalisation is modulated by the time of the noise.

The letters in shapes are B batch, S tokens, D width, H heads.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from convoy_workloads.engines.adaptiveload.layernorm_modulate import (
    layernorm_modulate,
    plain_layernorm_modulate,
)
from convoy_workloads.engines.adaptiveload.params import Params


class Block(nn.Module):
    """An attention layer, then a feed-forward network. Shift, scale and gate of both come from the time."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads = heads
        self.modulate = layernorm_modulate if fused else plain_layernorm_modulate
        self.condition = nn.Linear(width, 6 * width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x_BSD: Tensor, time_BD: Tensor) -> Tensor:
        """Return the residual stream after this block."""
        B, S, D = x_BSD.shape
        shift, scale, gate, feed_shift, feed_scale, feed_gate = self.condition(F.silu(time_BD)).chunk(6, -1)
        qkv = self.qkv(self.modulate(x_BSD, shift, scale)).view(B, S, 3, self.heads, D // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, S, D)
        x_BSD = x_BSD + gate[:, None] * self.out(mixed)
        fed: Tensor = self.feed(self.modulate(x_BSD, feed_shift, feed_scale))
        out: Tensor = x_BSD + feed_gate[:, None] * fed
        return out


class DiT(nn.Module):
    """The model. It predicts the velocity of each token."""

    def __init__(self, params: Params) -> None:
        super().__init__()
        width = params.width
        self.width = width
        self.enter = nn.Linear(params.channels, width)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Block(width, params.heads, params.fused) for _ in range(params.layers))
        self.leave = nn.Linear(width, params.channels)
        for block in self.blocks:
            # Each block begins as the identity (adaLN-Zero): its gates are 0.
            nn.init.zeros_(block.condition.weight)  # type: ignore[union-attr,arg-type]
            nn.init.zeros_(block.condition.bias)  # type: ignore[union-attr,arg-type]
        nn.init.zeros_(self.leave.weight)

    def forward(self, x_BSC: Tensor, time_B: Tensor) -> Tensor:
        """Return the velocities [B, S, channels]."""
        places = torch.arange(x_BSC.shape[1], device=x_BSC.device, dtype=torch.float32)
        x_BSD = self.enter(x_BSC) + waves(places, self.width)
        time_BD = self.time(waves(1000 * time_B, self.width))
        for block in self.blocks:
            x_BSD = block(x_BSD, time_BD)
        return self.leave(x_BSD)  # type: ignore[no-any-return]


def waves(values: Tensor, width: int) -> Tensor:
    """Return `width` sines and cosines of each value, at frequencies from 1 to 1/10000."""
    rates = torch.exp(-math.log(10_000) * torch.arange(width // 2, device=values.device) / (width // 2))
    angles = values.float()[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], -1)
