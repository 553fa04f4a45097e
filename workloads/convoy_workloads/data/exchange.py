"""Exchanges of numbers between the ranks of a loader, in a process group of their own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from convoy_workloads.runtime.errors import PeerLost


class Exchange:
    """A gloo process group that only a loader uses, so that its exchanges never wait for collectives of the
    training. Without a process group, the only rank exchanges with itself.

    All ranks create it at the same place of the program.
    """

    def __init__(self, timeout_seconds: float, group: Any = None) -> None:
        """`group`: the ranks that share the data, if they are not all ranks; a group with gloo.

        Raises ValueError for a group without gloo, and on ranks outside of the group.
        """
        self._timeout_seconds = timeout_seconds
        self.wait_seconds = 0.0
        """Seconds that this rank has spent in exchanges, mostly waiting for slower ranks."""
        self._group = group
        if group is None and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_seconds))
        if group is not None:
            if group == dist.GroupMember.NON_GROUP_MEMBER:
                raise ValueError("group: this rank is not in it, so it must not create the loader")
            if "cpu:" not in (config := dist.get_backend_config(group)):
                raise ValueError(f"group: its backend is {config}, but the loader needs gloo")
        self.rank = dist.get_rank(self._group) if self._group is not None else 0
        self.world = dist.get_world_size(self._group) if self._group is not None else 1

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the numbers of all ranks, in the order of the ranks. All ranks send equally many numbers.

        Raises PeerLost if a rank is lost, or does not send within the timeout.
        """
        if self._group is None:
            if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
                raise RuntimeError(
                    "the loader was created before the process group, so each rank would use all samples: "
                    "create it after init_process_group or convoy.join"
                )
            return [list(numbers)]
        began = time.monotonic()
        sent = torch.tensor(numbers, dtype=torch.int64)
        received = [torch.empty_like(sent) for _ in range(self.world)]
        try:
            dist.all_gather(received, sent, group=self._group)
        except RuntimeError as error:
            raise PeerLost(
                f"rank {self.rank}: another rank has ended, has left its loader, or needed more than "
                f"timeout_seconds={self._timeout_seconds:g} for its step: {str(error).splitlines()[0]}"
            ) from error
        finally:
            self.wait_seconds += time.monotonic() - began
        return [one.tolist() for one in received]
