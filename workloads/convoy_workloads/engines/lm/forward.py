"""The forward pass over the rows of an iteration, with a paged key-value cache.

The result of a row depends only on the tokens of its own sequence, down to the last bit:

- Every operation has the same shape in every iteration. A matrix product computes each row with the same
  kernel then, whatever the other rows contain. (With another number of rows, it may use another kernel.)
  A model whose products are exact by row (`Transformer.row_exact`) needs no padding rows.
- Attention adds up tiles of `TILE` positions in their order. A tile behind the row's position has the weight
  0 and changes nothing, so the number of tiles does not matter.

The letters in shapes are R rows, C width, H heads, K key-value heads, G attention heads of a key-value head,
D width of a head, P positions of a tile, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from convoy_workloads.engines.lm.blocks import TRASH
from convoy_workloads.engines.lm.scheduler import Row
from convoy_workloads.engines.lm.transformer import Transformer

Integers = np.ndarray[tuple[int, int], np.dtype[np.int64]]
"""An iteration's rows as one array: per row the token, the position, 1 if it gives a next token, and the
blocks.
"""
NEWEST = 2
"""Column that is 1 if the row gives the next token of its sequence."""
FIRST_BLOCK = 3
"""Column of a row's first block."""
TILE = 64
"""Minimum number of positions in an attention tile."""


@dataclass(frozen=True)
class Batch:
    """The rows of an iteration as tensors."""

    tokens_R: Tensor
    positions_R: Tensor
    targets_R: Tensor
    """Position in the cache that each row writes."""
    blocks: Tensor
    """Blocks of the cache that each row reads. The shape is [tiles, R * blocks per tile]."""
    mask: Tensor
    """0 where a row reads, -inf where a position is behind the row. The shape is [tiles, R, P]."""


class Layout:
    """The conversion of rows into tensors of a fixed shape."""

    def __init__(self, rows: int, block: int, context: int) -> None:
        self.rows = rows
        self.block = block
        self.context = context
        self.tile = block * math.ceil(min(TILE, context) / block)
        """Number of positions of a tile: whole blocks."""
        self.tiles = math.ceil(context / self.tile)
        """Maximum number of tiles."""
        self._per_tile = self.tile // block
        self.size = rows * (FIRST_BLOCK + self.tiles * self._per_tile)
        """Number of entries of the array that `integers` returns."""

    def integers(self, rows: Sequence[Row]) -> Integers:
        """Return the rows as one array. Padding rows have the token 0 and the block `TRASH`."""
        found = np.full((self.rows, FIRST_BLOCK + self.tiles * self._per_tile), TRASH, dtype=np.int64)
        found[:, :FIRST_BLOCK] = 0
        for number, row in enumerate(rows):
            blocks = row.sequence.blocks
            found[number, 0] = row.sequence.tokens[row.position]
            found[number, 1] = row.position
            found[number, NEWEST] = row.last
            found[number, FIRST_BLOCK : FIRST_BLOCK + len(blocks)] = blocks
        return found

    def batch(self, integers: Integers, device: torch.device) -> Batch:
        """Return the tensors for the array that `integers` returns."""
        rows = len(integers)
        positions = integers[:, 1]
        tiles = int(positions.max()) // self.tile + 1
        tables = integers[:, FIRST_BLOCK : FIRST_BLOCK + tiles * self._per_tile]
        reach = np.arange(tiles * self.tile).reshape(tiles, 1, self.tile)
        mask = np.where(reach <= positions[None, :, None], np.float32(0), np.float32(-np.inf))
        own = np.take_along_axis(tables, (positions // self.block)[:, None], axis=1)[:, 0]
        targets = own * self.block + positions % self.block
        by_tile = tables.reshape(rows, tiles, self._per_tile).transpose(1, 0, 2)
        blocks = np.ascontiguousarray(by_tile).reshape(tiles, -1)
        tensors = (integers[:, 0].copy(), positions.copy(), targets, blocks, mask)
        return Batch(*(torch.from_numpy(one).to(device) for one in tensors))


class PagedModel:
    """Some of a model's layers, with their part of the key-value cache."""

    def __init__(self, model: Transformer, layers: range, layout: Layout, blocks: int) -> None:
        """`layers`: numbers of the layers to compute. `blocks`: number of usable cache blocks."""
        self.model = model
        self.layers = layers
        self.layout = layout
        self.count = blocks
        """Number of usable blocks of the cache."""
        self.device = model.device
        heads, entries = model.shape.kv_heads, layout.block * model.shape.head_width
        shape = (len(layers), heads, blocks + 1, entries)
        self._keys = torch.zeros(shape, dtype=model.dtype, device=self.device)
        self._values = torch.zeros(shape, dtype=model.dtype, device=self.device)
        # The tiles that an iteration reads are copied here. New memory for each copy would cost more time.
        tile = heads * layout.rows * (layout.tile // layout.block) * entries
        self._read = [torch.empty(tile, dtype=model.dtype, device=self.device) for _ in range(2)]
        self._exact = [one if one.dtype is torch.float32 else one.float() for one in self._read]
        self._scores = torch.empty(model.shape.heads * layout.rows * layout.tile, device=self.device)

    def clear(self) -> None:
        """Set the whole cache to zero."""
        self._keys.zero_()
        self._values.zero_()

    @torch.inference_mode()
    def embed(self, batch: Batch) -> Tensor:
        """Return the residual stream before the first layer."""
        return self.model.embed(batch.tokens_R, batch.positions_R)

    @torch.inference_mode()
    def blocks(self, x_RC: Tensor, batch: Batch) -> Tensor:
        """Return the residual stream after this part's layers. The rows' keys and values go to the cache."""
        for number, layer in enumerate(self.layers):
            x_RC = self.model.after_attention(layer, x_RC, self._attend(layer, number, x_RC, batch))
        return x_RC

    @torch.inference_mode()
    def logits(self, x_RC: Tensor) -> Tensor:
        """Return the logits of the next token of each row, as float32."""
        return self.model.logits(x_RC).float()

    def _attend(self, layer: int, number: int, x_RC: Tensor, batch: Batch) -> Tensor:
        """Return the values that the attention of a layer mixes, in the type of the residual stream. The sums
        are in float32.
        """
        shape = self.model.shape
        R, K, D, P = len(x_RC), shape.kv_heads, shape.head_width, self.layout.tile
        G = shape.heads // K
        keys, values = self._keys[number], self._values[number]
        q_RHD, k_RKD, v_RKD = self.model.attention_inputs(layer, x_RC, batch.positions_R)
        keys.view(K, -1, D).index_copy_(1, batch.targets_R, k_RKD.transpose(0, 1))
        values.view(K, -1, D).index_copy_(1, batch.targets_R, v_RKD.transpose(0, 1))
        query = (q_RHD.float() * (1.0 / math.sqrt(D))).view(R, K, G, D).transpose(0, 1).reshape(K * R, G, D)
        highest = query.new_full((K * R, G, 1), -math.inf)
        total = query.new_zeros((K * R, G, 1))
        mixed = query.new_zeros((K * R, G, D))
        scores = self._scores[: K * R * G * P].view(K * R, G, P)
        for blocks, mask_RP in zip(batch.blocks, batch.mask, strict=True):
            k = self._tile(keys, blocks, 0).view(K * R, P, D)
            v = self._tile(values, blocks, 1).view(K * R, P, D)
            torch.bmm(query, k.transpose(1, 2), out=scores)
            scores.view(K, R, G, P).add_(mask_RP[:, None])
            raised = torch.maximum(highest, scores.amax(-1, keepdim=True))
            shrink = torch.exp(highest - raised)
            weights = scores.sub_(raised).exp_()
            total = total * shrink + weights.sum(-1, keepdim=True)
            mixed = mixed * shrink + torch.bmm(weights, v)
            highest = raised
        found = (mixed / total).view(K, R, G, D).transpose(0, 1).reshape(R, K * G * D)
        return found.to(x_RC.dtype)

    def _tile(self, cache: Tensor, blocks: Tensor, number: int) -> Tensor:
        """Return the entries of some blocks of the cache, as float32. `number`: 0 for the keys, 1 for the
        values.
        """
        entries = cache.shape[0] * len(blocks) * cache.shape[2]
        read = self._read[number][:entries].view(cache.shape[0], len(blocks), -1)
        torch.index_select(cache, 1, blocks, out=read)
        if read.dtype is torch.float32:
            return read
        return self._exact[number][:entries].copy_(read.flatten())
