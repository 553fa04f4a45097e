"""All-reduces of a group of ranks, with the number of calls, the bytes and the seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass
class Traffic:
    """The totals of a rank's collectives."""

    calls: int = 0
    payload_bytes: int = 0
    """Bytes of the reduced tensors. A ring of W ranks sends 2 (W - 1) / W times as many over each edge."""
    seconds: float = 0.0
    """Seconds that this rank has waited for the collectives."""


class Collectives:
    """The collectives of one group of ranks. A rank that is alone calls nothing, so nothing is counted."""

    def __init__(
        self,
        all_reduce: Callable[[Tensor], Any],
        rank: int = 0,
        world: int = 1,
        clock: Callable[[], float] = time.monotonic,
        device: torch.device | None = None,
    ) -> None:
        """`all_reduce`: replaces a tensor by its sum over all ranks, and returns when that is done. `device`:
        the device whose tensors the group can send; the processor by default.
        """
        self._device = device
        self._all_reduce = all_reduce
        self._clock = clock
        self.rank = rank
        self.world = world
        self.traffic = Traffic()

    def all_reduce(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over all ranks."""
        if self.world == 1:
            return
        began = self._clock()
        self._all_reduce(tensor)
        self.traffic.seconds += self._clock() - began
        self.traffic.calls += 1
        self.traffic.payload_bytes += tensor.numel() * tensor.element_size()

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Return a context whose calls do not count as traffic, such as measurements and checks."""
        before, self.traffic = self.traffic, Traffic()
        try:
            yield
        finally:
            self.traffic = before

    def mean(self, values: list[float]) -> list[float]:
        """Return the mean over all ranks of each value. The result has the same bits on all ranks."""
        total = torch.tensor(values, dtype=torch.float64, device=self._device)
        self.all_reduce(total)
        return [float(one) / self.world for one in total]

    def _sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks of a tensor on the processor."""
        sent = tensor.to(self._device) if self._device else tensor
        self.all_reduce(sent)
        return sent.cpu()

    def gather_bytes(self, own: Sequence[bytes]) -> list[bytes]:
        """Return the messages of all ranks, in the order of the ranks. The numbers of messages may differ."""
        if self.world == 1:
            return list(own)
        counts = torch.zeros(2, self.world, dtype=torch.int64)
        counts[:, self.rank] = torch.tensor([len(own), sum(map(len, own))])
        messages, total = (one.tolist() for one in self._sum(counts))
        sizes = torch.zeros(sum(messages), dtype=torch.int64)
        first = sum(messages[: self.rank])
        sizes[first : first + len(own)] = torch.tensor([len(one) for one in own], dtype=torch.int64)
        sizes = self._sum(sizes)
        data = torch.zeros(sum(total), dtype=torch.uint8)
        start, mine = sum(total[: self.rank]), b"".join(own)
        if mine:
            data[start : start + len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
        data = self._sum(data)
        ends = [0, *accumulate(sizes.tolist())]
        whole = data.numpy().tobytes()
        return [whole[one:other] for one, other in pairwise(ends)]


def of_group(group: Any = None) -> Collectives:
    """Return the collectives of a process group. Without `group` this is the default process group, or this
    process alone if there is none.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return Collectives(lambda tensor: tensor)

    def all_reduce(tensor: Tensor) -> None:
        dist.all_reduce(tensor, group=group)

    nccl = dist.get_backend(group) == "nccl"
    device = torch.device("cuda", torch.cuda.current_device()) if nccl else None
    return Collectives(all_reduce, dist.get_rank(group), dist.get_world_size(group), device=device)
