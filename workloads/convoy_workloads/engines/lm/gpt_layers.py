"""The models of the engine gpt, layer by layer."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from convoy_workloads.engines.gpt.model import GPT, VOCABULARY, Block
from convoy_workloads.engines.lm.transformer import TOLERANCES, Shape


class GPTLayers:
    """A dense model of gpt as a Transformer."""

    row_exact = False

    def __init__(self, model: GPT) -> None:
        self.model = model
        width = int(model.tokens.weight.shape[1])
        layers = len(model.blocks)
        heads = self._block(0).heads
        self.shape = Shape(VOCABULARY, model.context, layers, width, heads, heads, width // heads)

    @property
    def tolerance(self) -> float:
        """Return the maximum difference between the paged and the plain pass."""
        return TOLERANCES[self.dtype]

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        return self.model.tokens.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of the residual stream."""
        return self.model.tokens.weight.dtype

    def embed(self, tokens_R: Tensor, positions_R: Tensor) -> Tensor:
        """Return the residual stream before the first layer."""
        found: Tensor = self.model.tokens(tokens_R) + self.model.positions(positions_R)
        return found

    def attention_inputs(
        self, layer: int, x_RC: Tensor, positions_R: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries, keys and values of a layer."""
        block, shape = self._block(layer), self.shape
        qkv = block.qkv(block.norm_attention(x_RC)).view(-1, 3, shape.heads, shape.head_width)
        return qkv[:, 0], qkv[:, 1], qkv[:, 2]

    def after_attention(self, layer: int, x_RC: Tensor, mixed_RC: Tensor) -> Tensor:
        """Return the residual stream after a layer."""
        block = self._block(layer)
        x_RC = x_RC + block.out(mixed_RC)
        fed: Tensor = block.narrow(F.gelu(block.widen(block.norm_feed(x_RC))))
        return x_RC + fed

    def logits(self, x_RC: Tensor) -> Tensor:
        """Return the logits of the next tokens."""
        found: Tensor = self.model.head(self.model.norm(x_RC))
        return found

    def plain(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits of whole sequences."""
        found: Tensor = self.model(tokens_BT)
        return found

    def _block(self, layer: int) -> Block:
        found = self.model.blocks[layer]
        assert isinstance(found, Block)  # noqa: S101 - ModuleList has no type of its elements
        return found
