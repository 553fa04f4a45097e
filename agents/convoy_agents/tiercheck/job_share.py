"""One job's share of a node's memory: the bytes for each purpose, and the tmpfs that has the total size."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Collection, Mapping
from pathlib import Path

from convoy_agents.tiercheck import memory, shares
from convoy_agents.tiercheck.budget import Budget, Refusal
from convoy_agents.tiercheck.shares import BUFFERS, OTHERS, OVERHEAD


class BudgetExceeded(OSError):
    """The request would exceed the node's limit or the job's own limit."""

    def __init__(self, refusal: Refusal) -> None:
        # The errno is that of ShareExhausted, so a caller can handle both as one OSError.
        super().__init__(errno.ENOSPC, str(refusal))
        self.refusal = refusal

    def __str__(self) -> str:
        return str(self.refusal)


class JobShare:
    """The share of one job of the node's memory for checkpoints. The caller must not run two methods at the
    same time.
    """

    def __init__(self, job_uid: str, folder: Path, budget: Budget) -> None:
        self._job_uid = job_uid
        self._folder = folder
        self._budget = budget
        self._floor = 0
        """Smallest size of the tmpfs in bytes. It must not shrink while ranks may still write to buffers that
        were released, because a write beyond its size would kill them.
        """
        self._purposes: dict[str, int] = {}
        """Bytes by purpose. A purpose is the buffers of a rank, or all copies and fetched shards."""

    def recover(self, found: Mapping[str, int]) -> None:
        """Register the share that an earlier agent gave the job. `found`: bytes by purpose."""
        self._purposes = dict(found)
        self._budget.shares[self._job_uid] = shares.total_size(found)

    async def open(self) -> None:
        """Mount the tmpfs unless it is mounted. Raises BudgetExceeded, or OSError if mounting fails."""
        if self._job_uid in self._budget.shares:
            return
        if refusal := self._budget.grow(self._job_uid, OVERHEAD):
            raise BudgetExceeded(refusal)
        await asyncio.to_thread(memory.open_share, self._folder, OVERHEAD)

    async def grow(self, purpose: str, size: int, own_limit: int) -> None:
        """Grow the share so that `purpose` has at least `size` bytes. Raises BudgetExceeded, and changes
        nothing, if a limit would be exceeded.

        `own_limit`: the job's own limit in bytes; 0 if it has none.
        """
        if size <= self._purposes.get(purpose, 0):
            return
        wanted = {**self._purposes, purpose: size}
        if refusal := self._budget.grow(self._job_uid, shares.total_size(wanted), own_limit):
            raise BudgetExceeded(refusal)
        size = max(self._floor, self._budget.shares[self._job_uid])
        await asyncio.to_thread(memory.open_share, self._folder, size)
        await asyncio.to_thread(shares.write, self._folder, wanted)
        self._purposes = wanted

    async def release(self) -> None:
        """Return the share to the node's budget, except the bytes of an empty share. The caller has removed
        all shards and buffers.
        """
        self._floor = max(self._floor, self._budget.shares.get(self._job_uid, 0))
        self._purposes = {}
        self._budget.shares[self._job_uid] = OVERHEAD
        await asyncio.to_thread(shares.write, self._folder, self._purposes)

    def keep_buffers(self, purposes: Collection[str]) -> None:
        """Stop counting the bytes of all buffers except those of `purposes`. Other purposes may then use
        these bytes within the share.
        """
        self._purposes = {
            purpose: share
            for purpose, share in self._purposes.items()
            if not purpose.startswith(BUFFERS) or purpose in purposes
        }

    async def shrink(self, others: int) -> None:
        """Shrink the share to the bytes that the job needs. `others`: the bytes of all shards outside the
        buffers, which are fetched shards and copies for other nodes.
        """
        self._purposes[OTHERS] = others
        size = max(
            shares.total_size(self._purposes), await asyncio.to_thread(memory.used_bytes, self._folder)
        )
        await asyncio.to_thread(memory.open_share, self._folder, max(self._floor, size))
        self._budget.shares[self._job_uid] = size
        await asyncio.to_thread(shares.write, self._folder, self._purposes)

    async def close(self) -> None:
        """Unmount the tmpfs and return the whole share to the node's budget."""
        self._budget.free(self._job_uid)
        await asyncio.to_thread(memory.close_share, self._folder)
