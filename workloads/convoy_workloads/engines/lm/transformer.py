"""The protocol between the paged forward pass and a decoder-only transformer.

The letters in shapes are R rows, C width, H attention heads, K key-value heads, D width of a head, B batch,
T time and V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Shape:
    """The sizes of a transformer."""

    vocabulary: int
    context: int
    """Maximum number of tokens of a sequence."""
    layers: int
    width: int
    """Size of the residual stream."""
    heads: int
    kv_heads: int
    """Number of heads of the keys and values. Each serves heads / kv_heads attention heads."""
    head_width: int


TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 0.05}
"""`Transformer.tolerance` by type of the weights."""


class Transformer(Protocol):
    """A transformer whose layers the paged forward pass computes one by one."""

    shape: Shape
    row_exact: bool
    """True if the bits of a row do not depend on the number of rows, so that no padding rows are needed."""

    @property
    def tolerance(self) -> float:
        """Return the maximum difference of logits between the paged and the plain pass, as a share of the
        largest logit.
        """
        ...

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of the residual stream."""
        ...

    def embed(self, tokens_R: Tensor, positions_R: Tensor) -> Tensor:
        """Return the residual stream [R, C] before the first layer."""
        ...

    def attention_inputs(
        self, layer: int, x_RC: Tensor, positions_R: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries [R, H, D], keys [R, K, D] and values [R, K, D] of a layer."""
        ...

    def after_attention(self, layer: int, x_RC: Tensor, mixed_RC: Tensor) -> Tensor:
        """Return the residual stream after a layer, from the values [R, H * D] that the attention mixed."""
        ...

    def logits(self, x_RC: Tensor) -> Tensor:
        """Return the logits [R, V] after the last layer."""
        ...

    def plain(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits [B, T, V] of whole sequences, without a cache."""
        ...
