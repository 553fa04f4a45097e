"""A model whose matrices are packed, as a Transformer whose rows have the same bits in every batch.

Each operation computes a row from that row alone: the packed products, the norms, and attention with one
matrix product for each row. Elementwise functions of torch use other code for the last elements of an array,
so the feed-forward network must be a multiple of `LANES` wide. The head's product is computed row by row.
`tests/unit/workloads/tilefuse/test_bits.py` and the self-test of each replica check the bits.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from convoy_workloads.engines.gpt.model import GPT
from convoy_workloads.engines.lm.gpt_layers import GPTLayers
from convoy_workloads.engines.lm.llama import Llama
from convoy_workloads.engines.lm.transformer import TOLERANCES, Shape
from convoy_workloads.engines.tilefuse import sequences
from convoy_workloads.engines.tilefuse.packed_linear import PackedLinear
from convoy_workloads.engines.tilefuse.structure import Model

LANES = 64
"""Elements that torch's elementwise functions compute together, at most."""
HEAD_SLICE = 8 << 20
"""Bytes of the head's weights that all rows use before the next: they stay in a processor's cache."""


class PackedTransformer:
    """A model with packed matrices."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.shape: Shape = model.shape
        self.row_exact = _feed(model) % LANES == 0
        """False: the number of rows is always the same, as for a model that is not quantised."""
        weight = self._parts.head.weight
        self._slices = torch.split(weight, max(1, HEAD_SLICE // (weight.shape[1] * weight.itemsize)))
        self._row = torch.empty((1, weight.shape[1]), dtype=weight.dtype)
        """The row that the head computes. Its address is always the same, as a product may depend on it."""

    @property
    def tolerance(self) -> float:
        """Return the maximum difference between the paged and the plain pass."""
        return TOLERANCES[self.dtype]

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of the residual stream."""
        return self.model.dtype

    @property
    def packed(self) -> list[PackedLinear]:
        """Return all packed matrices."""
        return [one for one in self._parts.modules() if isinstance(one, PackedLinear)]

    def embed(self, tokens_R: Tensor, positions_R: Tensor) -> Tensor:
        """Return the residual stream before the first layer."""
        return self.model.embed(tokens_R, positions_R)

    def attention_inputs(
        self, layer: int, x_RC: Tensor, positions_R: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries, keys and values of a layer."""
        return self.model.attention_inputs(layer, x_RC, positions_R)

    def after_attention(self, layer: int, x_RC: Tensor, mixed_RC: Tensor) -> Tensor:
        """Return the residual stream after a layer."""
        return self.model.after_attention(layer, x_RC, mixed_RC)

    def logits(self, x_RC: Tensor) -> Tensor:
        """Return the logits of the next tokens."""
        normed = self._parts.norm(x_RC).to(self._row.dtype)
        found = torch.empty((len(x_RC), self.shape.vocabulary), dtype=self._row.dtype)
        start = 0
        for part in self._slices:
            for number, row in enumerate(normed):
                self._row[0] = row
                found[number, start : start + len(part)] = F.linear(self._row, part)[0]
            start += len(part)
        return found

    def plain(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits of whole sequences."""
        return sequences.logits(self, tokens_BT)

    @property
    def _parts(self) -> GPT | Llama:
        return self.model.model if isinstance(self.model, GPTLayers) else self.model


def _feed(model: Model) -> int:
    """Return the width of the feed-forward network."""
    return 4 * model.shape.width if isinstance(model, GPTLayers) else model.feed
