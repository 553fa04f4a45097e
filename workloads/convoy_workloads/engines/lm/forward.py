"""The forward pass over the rows of an iteration, with a paged key-value cache.

The result of a row depends only on the tokens of its own sequence, down to the last bit:

- Every operation has the same shape in every iteration. A matrix product computes each row with the same
  kernel then, whatever the other rows contain. (With another number of rows, it may use another kernel.)
- Attention adds up tiles of `TILE` positions in their order. A tile behind the row's position has the weight
  0 and changes nothing, so the number of tiles does not matter.

The letters in shapes are R rows, C width, H heads, D width of a head, P positions of a tile, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from convoy_workloads.engines.gpt.model import GPT, Block
from convoy_workloads.engines.lm.blocks import TRASH
from convoy_workloads.engines.lm.scheduler import Row

TILE = 64
"""Minimum number of positions of a tile of attention."""


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
        self.size = rows * (2 + self.tiles * self._per_tile)
        """Number of entries of the array that `integers` returns."""

    def integers(self, rows: Sequence[Row]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """Return the rows as one array: per row the token, the position and the blocks. Padding rows have
        the token 0 and the block `TRASH`.
        """
        found = np.full((self.rows, 2 + self.tiles * self._per_tile), TRASH, dtype=np.int64)
        found[:, :2] = 0
        for number, row in enumerate(rows):
            blocks = row.sequence.blocks
            found[number, 0] = row.sequence.tokens[row.position]
            found[number, 1] = row.position
            found[number, 2 : 2 + len(blocks)] = blocks
        return found

    def batch(self, integers: np.ndarray[tuple[int, int], np.dtype[np.int64]], device: torch.device) -> Batch:
        """Return the tensors for the array that `integers` returns."""
        positions = integers[:, 1]
        tiles = int(positions.max()) // self.tile + 1
        tables = integers[:, 2 : 2 + tiles * self._per_tile]
        reach = np.arange(tiles * self.tile).reshape(tiles, 1, self.tile)
        mask = np.where(reach <= positions[None, :, None], np.float32(0), np.float32(-np.inf))
        own = np.take_along_axis(tables, (positions // self.block)[:, None], axis=1)[:, 0]
        targets = own * self.block + positions % self.block
        by_tile = tables.reshape(self.rows, tiles, self._per_tile).transpose(1, 0, 2)
        blocks = np.ascontiguousarray(by_tile).reshape(tiles, -1)
        tensors = (integers[:, 0].copy(), positions.copy(), targets, blocks, mask)
        return Batch(*(torch.from_numpy(one).to(device) for one in tensors))


class PagedModel:
    """Some of a model's blocks, with their part of the key-value cache."""

    def __init__(self, model: GPT, layers: range, layout: Layout, blocks: int) -> None:
        """`layers`: numbers of the transformer blocks to compute. `blocks`: number of usable cache blocks."""
        self.model = model
        self.layers = layers
        self.layout = layout
        self.count = blocks
        """Number of usable blocks of the cache."""
        self.device = model.tokens.weight.device
        heads = self._block(layers[0]).heads
        self.width = int(model.tokens.weight.shape[1])
        head = self.width // heads
        shape = (len(layers), heads, blocks + 1, layout.block * head)
        self._keys = torch.zeros(shape, device=self.device)
        self._values = torch.zeros(shape, device=self.device)
        # The tiles that an iteration reads are copied here. New memory for each copy would cost more time.
        tile = (heads, layout.rows * (layout.tile // layout.block), layout.block * head)
        self._read = (torch.empty(tile, device=self.device), torch.empty(tile, device=self.device))
        self._scores = torch.empty((heads * layout.rows, 1, layout.tile), device=self.device)

    def clear(self) -> None:
        """Set the whole cache to zero."""
        self._keys.zero_()
        self._values.zero_()

    @torch.inference_mode()
    def embed(self, batch: Batch) -> Tensor:
        """Return the residual stream before the first block."""
        found: Tensor = self.model.tokens(batch.tokens_R) + self.model.positions(batch.positions_R)
        return found

    @torch.inference_mode()
    def blocks(self, x_RC: Tensor, batch: Batch) -> Tensor:
        """Return the residual stream after this part's blocks. The rows' keys and values go to the cache."""
        for number, layer in enumerate(self.layers):
            block = self._block(layer)
            x_RC = x_RC + block.out(self._attend(block, number, x_RC, batch))
            x_RC = x_RC + block.narrow(F.gelu(block.widen(block.norm_feed(x_RC))))
        return x_RC

    @torch.inference_mode()
    def logits(self, x_RC: Tensor) -> Tensor:
        """Return the logits of the next token of each row."""
        found: Tensor = self.model.head(self.model.norm(x_RC))
        return found

    def _block(self, layer: int) -> Block:
        found = self.model.blocks[layer]
        assert isinstance(found, Block)  # noqa: S101 - ModuleList has no type of its elements
        return found

    def _attend(self, block: Block, number: int, x_RC: Tensor, batch: Batch) -> Tensor:
        R, H, P = self.layout.rows, block.heads, self.layout.tile
        D = x_RC.shape[1] // H
        keys, values = self._keys[number], self._values[number]
        qkv = block.qkv(block.norm_attention(x_RC)).view(R, 3, H, D).permute(1, 2, 0, 3)
        keys.view(H, -1, D).index_copy_(1, batch.targets_R, qkv[1])
        values.view(H, -1, D).index_copy_(1, batch.targets_R, qkv[2])
        query = (qkv[0] * (1.0 / math.sqrt(D))).reshape(H * R, 1, D)
        highest = query.new_full((H * R, 1, 1), -math.inf)
        total = query.new_zeros((H * R, 1, 1))
        mixed = query.new_zeros((H * R, 1, D))
        for blocks, mask_RP in zip(batch.blocks, batch.mask, strict=True):
            k = torch.index_select(keys, 1, blocks, out=self._read[0]).view(H * R, P, D)
            v = torch.index_select(values, 1, blocks, out=self._read[1]).view(H * R, P, D)
            scores = torch.bmm(query, k.transpose(1, 2), out=self._scores)
            scores.view(H, R, P).add_(mask_RP)
            raised = torch.maximum(highest, scores.amax(-1, keepdim=True))
            shrink = torch.exp(highest - raised)
            weights = scores.sub_(raised).exp_()
            total = total * shrink + weights.sum(-1, keepdim=True)
            mixed = mixed * shrink + torch.bmm(weights, v)
            highest = raised
        found: Tensor = (mixed / total).view(H, R, D).transpose(0, 1).reshape(R, H * D)
        return found
