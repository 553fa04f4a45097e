"""A transformer of the family Llama: RMS norms, rotary positions, grouped key-value heads and a gated
feed-forward network (Touvron et al., arXiv 2302.13971; Ainslie et al., arXiv 2305.13245).

The parts of a layer that read the same input are one matrix: queries, keys and values; gate and input of the
feed-forward network. The letters in shapes are those of `transformer.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from convoy_workloads.engines.lm.transformer import TOLERANCES, Shape


@dataclass(frozen=True)
class Frequencies:
    """The rotary positions' parameters: the base, and the stretching of Llama 3.1 for long contexts."""

    base: float = 10_000.0
    factor: float = 1.0
    """Factor by which the long wave lengths are stretched; 1 for none."""
    low: float = 1.0
    """Waves that fit less often than this into the original context are stretched whole."""
    high: float = 4.0
    """Waves that fit more often than this into the original context are not stretched."""
    original_context: int = 8192

    def values(self, head_width: int) -> Tensor:
        """Return the angle per position of each pair of coordinates, as float32 of shape [D / 2]."""
        angles = self.base ** -(torch.arange(0, head_width, 2, dtype=torch.float32) / head_width)
        if self.factor == 1.0:
            return angles
        fits = self.original_context * angles / (2 * math.pi)
        kept = ((fits - self.low) / (self.high - self.low)).clamp(0, 1)
        return angles * (kept + (1 - kept) / self.factor)

    def tables(self, shape: Shape) -> tuple[Tensor, Tensor]:
        """Return the cosines and the sines of all positions, each as float32 of shape [context, D / 2]."""
        positions = torch.arange(shape.context, dtype=torch.float32)
        angles = torch.outer(positions, self.values(shape.head_width))
        return angles.cos(), angles.sin()


class RMSNorm(nn.Module):
    """A norm by the root of the mean square, computed in float32."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised rows, in the type of `x`."""
        exact = x.float()
        exact = exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + self.epsilon)
        return self.weight * exact.to(x.dtype)


class Layer(nn.Module):
    """An attention layer and a gated feed-forward network."""

    def __init__(self, shape: Shape, feed: int, epsilon: float, qkv_bias: bool) -> None:
        super().__init__()
        C, D = shape.width, shape.head_width
        self.norm_attention = RMSNorm(C, epsilon)
        self.qkv = nn.Linear(C, (shape.heads + 2 * shape.kv_heads) * D, bias=qkv_bias)
        self.out = nn.Linear(shape.heads * D, C, bias=False)
        self.norm_feed = RMSNorm(C, epsilon)
        self.gate_up = nn.Linear(C, 2 * feed, bias=False)
        self.down = nn.Linear(feed, C, bias=False)

    def feed(self, x: Tensor) -> Tensor:
        """Return the output of the feed-forward network for the residual stream."""
        gate, up = self.gate_up(self.norm_feed(x)).chunk(2, dim=-1)
        found: Tensor = self.down(F.silu(gate) * up)
        return found


class Llama(nn.Module):
    """The language model, as a Transformer."""

    row_exact = False

    def __init__(
        self,
        shape: Shape,
        feed: int,
        *,
        epsilon: float = 1e-5,
        frequencies: Frequencies | None = None,
        qkv_bias: bool = False,
        tied: bool = False,
    ) -> None:
        """`feed`: width of the feed-forward network. `tied`: True if the output uses the weights of the
        input.
        """
        super().__init__()
        self.shape = shape
        self.feed = feed
        self.frequencies = frequencies or Frequencies()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape, feed, epsilon, qkv_bias) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.width, epsilon)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight
        cosines, sines = self.frequencies.tables(shape)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    @property
    def tolerance(self) -> float:
        """Return the maximum difference between the paged and the plain pass."""
        return TOLERANCES[self.dtype]

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        return self.tokens.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of the residual stream."""
        return self.tokens.weight.dtype

    def embed(self, tokens_R: Tensor, positions_R: Tensor) -> Tensor:
        """Return the residual stream before the first layer."""
        found: Tensor = self.tokens(tokens_R)
        return found

    def attention_inputs(
        self, layer: int, x_RC: Tensor, positions_R: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries, keys and values of a layer. Queries and keys are rotated by their position."""
        H, K, D = self.shape.heads, self.shape.kv_heads, self.shape.head_width
        one = self._layer(layer)
        qkv = one.qkv(one.norm_attention(x_RC)).view(*x_RC.shape[:-1], H + 2 * K, D)
        turned = self._rotate(qkv[..., : H + K, :], positions_R)
        return turned[..., :H, :], turned[..., H:, :], qkv[..., H + K :, :]

    def after_attention(self, layer: int, x_RC: Tensor, mixed_RC: Tensor) -> Tensor:
        """Return the residual stream after a layer."""
        one = self._layer(layer)
        x_RC = x_RC + one.out(mixed_RC)
        return x_RC + one.feed(x_RC)

    def logits(self, x_RC: Tensor) -> Tensor:
        """Return the logits of the next tokens."""
        found: Tensor = self.head(self.norm(x_RC))
        return found

    def plain(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits of whole sequences."""
        B, T = tokens_BT.shape
        groups = self.shape.heads // self.shape.kv_heads
        positions = torch.arange(T, device=self.device)
        x_BTC = self.embed(tokens_BT, positions)
        for layer in range(self.shape.layers):
            q, k, v = (one.transpose(1, 2) for one in self.attention_inputs(layer, x_BTC, positions))
            k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x_BTC = self.after_attention(layer, x_BTC, mixed.transpose(1, 2).reshape(B, T, -1))
        return self.logits(x_BTC)

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate each pair (coordinate i, coordinate i + D / 2) by the angle of its position."""
        cosines = self.cosines[positions].unsqueeze(-2)  # type: ignore[index]
        sines = self.sines[positions].unsqueeze(-2)  # type: ignore[index]
        first, second = x.float().chunk(2, dim=-1)
        turned = torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)
        return turned.to(x.dtype)

    def _layer(self, number: int) -> Layer:
        found = self.layers[number]
        assert isinstance(found, Layer)  # noqa: S101 - ModuleList has no type of its elements
        return found
