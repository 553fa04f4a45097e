"""Exchanges of numbers between the ranks of a loader, in a process group of their own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


class Exchange:
    """A gloo process group that only a loader uses, so that its exchanges never wait for collectives of the
    training. Without a process group, the only rank exchanges with itself.

    All ranks create it at the same place of the program.
    """

    def __init__(self, timeout_seconds: float, group: Any = None) -> None:
        """`group`: the ranks that share the data, if they are not all ranks; a group with gloo."""
        self.wait_seconds = 0.0
        """Seconds that this rank has spent in exchanges, mostly waiting for slower ranks."""
        self._group = group
        if group is None and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_seconds))
        self.rank = dist.get_rank(self._group) if self._group is not None else 0
        self.world = dist.get_world_size(self._group) if self._group is not None else 1

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the numbers of all ranks, in the order of the ranks. All ranks send equally many numbers.

        Raises RuntimeError if a rank is lost, or does not send within the timeout.
        """
        if self.world == 1:
            return [list(numbers)]
        began = time.monotonic()
        sent = torch.tensor(numbers, dtype=torch.int64)
        received = [torch.empty_like(sent) for _ in range(self.world)]
        try:
            dist.all_gather(received, sent, group=self._group)
        finally:
            self.wait_seconds += time.monotonic() - began
        return [one.tolist() for one in received]
