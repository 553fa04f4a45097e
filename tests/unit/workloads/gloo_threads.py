"""Ranks as threads of this process, whose collectives are real ones of gloo."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor

from convoy_workloads.comm.collectives import Collectives

T = TypeVar("T")
TIMEOUT = timedelta(seconds=60)


def run_ranks(world: int, rank_main: Callable[[Collectives], T]) -> list[T]:
    """Run a function on each rank, with the collectives of the rank. Return the results in order of the
    ranks.
    """
    store = dist.HashStore()

    def run(rank: int) -> T:
        group: Any = dist.ProcessGroupGloo(store, rank, world, TIMEOUT)

        def all_reduce(tensor: Tensor) -> None:
            group.allreduce([tensor], dist.AllreduceOptions()).wait()

        return rank_main(Collectives(all_reduce, rank, world))

    with ThreadPoolExecutor(world) as threads:
        return list(threads.map(run, range(world)))
