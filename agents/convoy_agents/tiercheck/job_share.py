"""One job's share of a node's memory: the bytes for each purpose, and the tmpfs of that size."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Collection, Mapping
from pathlib import Path

from convoy_agents.tiercheck import memory, shares
from convoy_agents.tiercheck.budget import Budget, Refusal
from convoy_agents.tiercheck.shares import BUFFERS, OTHERS, OVERHEAD


class BudgetExceeded(OSError):
    """The budget of the node or the job does not have enough memory left."""

    def __init__(self, refusal: Refusal) -> None:
        # ENOSPC, like ShareExhausted: a caller that can do without the memory need not tell the two apart.
        super().__init__(errno.ENOSPC, str(refusal))
        self.refusal = refusal

    def __str__(self) -> str:
        return str(self.refusal)


class JobShare:
    """The share of one job. Not for concurrent use."""

    def __init__(self, job_uid: str, folder: Path, budget: Budget) -> None:
        self._job_uid = job_uid
        self._folder = folder
        self._budget = budget
        self._purposes: dict[str, int] = {}
        """Bytes by purpose: the buffers of a rank, or the copies for other nodes."""

    def recover(self, found: Mapping[str, int]) -> None:
        """Take over the share that an earlier agent gave the job."""
        self._purposes = dict(found)
        self._budget.shares[self._job_uid] = shares.total_size(found)

    async def open(self) -> None:
        """Mount the tmpfs unless the job has one. BudgetExceeded, OSError."""
        if self._job_uid in self._budget.shares:
            return
        if refusal := self._budget.grow(self._job_uid, OVERHEAD):
            raise BudgetExceeded(refusal)
        await asyncio.to_thread(memory.open_share, self._folder, OVERHEAD)

    async def grow(self, purpose: str, size: int, own_limit: int) -> None:
        """Grow one purpose to at least so many bytes. On BudgetExceeded nothing changes.

        `own_limit`: the job's own limit in bytes; 0 for none.
        """
        if size <= self._purposes.get(purpose, 0):
            return
        wanted = {**self._purposes, purpose: size}
        if refusal := self._budget.grow(self._job_uid, shares.total_size(wanted), own_limit):
            raise BudgetExceeded(refusal)
        await asyncio.to_thread(memory.open_share, self._folder, self._budget.shares[self._job_uid])
        await asyncio.to_thread(shares.write, self._folder, wanted)
        self._purposes = wanted

    def keep_buffers(self, purposes: Collection[str]) -> None:
        """Keep these purposes' bytes for buffers; the bytes of all other buffers become free within the
        share.
        """
        self._purposes = {
            purpose: share
            for purpose, share in self._purposes.items()
            if not purpose.startswith(BUFFERS) or purpose in purposes
        }

    async def shrink(self, others: int) -> None:
        """Release what the job does not need, given the bytes that it needs for other nodes' shards."""
        self._purposes[OTHERS] = others
        size = max(
            shares.total_size(self._purposes), await asyncio.to_thread(memory.used_bytes, self._folder)
        )
        await asyncio.to_thread(memory.open_share, self._folder, size)
        self._budget.shares[self._job_uid] = size
        await asyncio.to_thread(shares.write, self._folder, self._purposes)

    async def close(self) -> None:
        """Release all memory."""
        self._budget.free(self._job_uid)
        await asyncio.to_thread(memory.close_share, self._folder)
