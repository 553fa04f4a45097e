"""The pipeline of a replica with several ranks: each rank computes some of the model's blocks, in order.

Rank 0 decides what an iteration computes and announces it to the others. The residual stream goes from rank
to rank, and the last rank sends the logits to rank 0. So all ranks make the same changes to their caches, and
the bits are those of a single rank.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import IntEnum

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from convoy_workloads.engines.lm.blocks import TRASH
from convoy_workloads.engines.lm.forward import FIRST_BLOCK, NEWEST, Batch, Integers, Layout, PagedModel
from convoy_workloads.engines.lm.scheduler import Row
from convoy_workloads.serving.group import Group
from convoy_workloads.serving.protocol import ModelError


class Notice(IntEnum):
    """Announcements of rank 0."""

    IDLE = 0
    """There is nothing to compute. Rank 0 is alive."""
    STEP = 1
    """Compute the rows that follow."""
    CLEAR = 2
    """Set the cache to zero."""
    LOAD = 3
    """Load the model again."""
    END = 4
    """The replica is ending."""


def layers_of(group: Group, layers: int) -> range:
    """Return the blocks that a rank computes. Raises ModelError if there are fewer blocks than ranks."""
    if layers < group.world:
        raise ModelError(
            f"spec.roles[].groupSize: {group.world} pods cannot share a model of {layers} transformer blocks"
        )
    return range(group.rank * layers // group.world, (group.rank + 1) * layers // group.world)


class Pipeline:
    """One rank's part of the pipeline."""

    def __init__(self, group: Group, paged: PagedModel) -> None:
        self.paged = paged
        self._group = group
        self._layout = paged.layout
        self._stream = torch.empty((self._layout.rows, paged.model.shape.width))
        self._logits = torch.empty((self._layout.rows, paged.model.shape.vocabulary))

    @property
    def layout(self) -> Layout:
        """Return the layout of the rows."""
        return self._layout

    # The following methods run on rank 0.

    def announce(self, notice: Notice, integers: Integers | None = None) -> None:
        """Send an announcement to all other ranks. Raises RuntimeError if a rank is lost."""
        if self._group.world == 1:
            return
        message = torch.zeros(self._layout.size + 1, dtype=torch.int64)
        message[0] = int(notice)
        if integers is not None:
            message[1:] = torch.from_numpy(integers.reshape(-1))
        for rank in range(1, self._group.world):
            dist.send(message, rank)

    def compute(self, rows: list[Row]) -> Tensor:
        """Compute rows. Return the logits of those that give a next token, in their order.

        Raises RuntimeError if a rank is lost.
        """
        integers = self._layout.integers(rows)
        self.announce(Notice.STEP, integers)
        batch = self._batch(integers)
        stream = self.paged.blocks(self.paged.embed(batch), batch)
        if self._group.world == 1:
            return self._newest_logits(stream, integers)
        dist.send(stream.float().cpu(), 1)
        logits = self._logits[: int(integers[:, NEWEST].sum())]
        if len(logits):
            dist.recv(logits, self._group.world - 1)
        return logits

    def clear(self) -> None:
        """Set the caches of all ranks to zero."""
        self.announce(Notice.CLEAR)
        self.paged.clear()

    def end(self) -> None:
        """Let the other ranks end. A rank that is lost already is ignored."""
        with contextlib.suppress(RuntimeError):
            self.announce(Notice.END)

    # The following method runs on the other ranks.

    def follow(self, beat: Callable[[], None]) -> Notice:
        """Compute this rank's part of each iteration, until rank 0 announces `LOAD` or `END`. Return that
        notice. `beat` is called for each message. Raises RuntimeError if a rank is lost.
        """
        message = torch.empty(self._layout.size + 1, dtype=torch.int64)
        rank, last = self._group.rank, self._group.world - 1
        while True:
            dist.recv(message, 0)
            beat()
            notice = Notice(int(message[0]))
            if notice in (Notice.LOAD, Notice.END):
                return notice
            if notice is Notice.CLEAR:
                self.paged.clear()
            elif notice is Notice.STEP:
                integers = message[1:].numpy().reshape(self._layout.rows, -1).copy()
                batch = self._batch(integers)
                received = self._stream[: len(batch.tokens_R)]
                dist.recv(received, rank - 1)
                model = self.paged.model
                stream = self.paged.blocks(received.to(model.device, model.dtype), batch)
                if rank != last:
                    dist.send(stream.float().cpu(), rank + 1)
                elif len(logits := self._newest_logits(stream, integers)):
                    dist.send(logits.cpu(), 0)

    def _newest_logits(self, stream: Tensor, integers: Integers) -> Tensor:
        """Return the logits of the rows that give a next token. `stream`: the residual stream of all rows."""
        newest = torch.from_numpy(np.flatnonzero(integers[:, NEWEST])).to(stream.device)
        if not len(newest):
            return self._logits[:0]
        if self.paged.model.row_exact:
            return self.paged.logits(stream[newest])
        # With another number of rows, the product could have other bits.
        return self.paged.logits(stream)[newest]

    def _batch(self, integers: Integers) -> Batch:
        """Return the rows as tensors, without padding rows if the model needs none."""
        if self.paged.model.row_exact:
            integers = integers[: max(1, int((integers[:, FIRST_BLOCK] != TRASH).sum()))]
        return self._layout.batch(integers, self.paged.device)
