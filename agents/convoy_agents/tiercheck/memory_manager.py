"""The memory of all jobs that have checkpoints on this node."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from convoy_agents import metrics
from convoy_agents.tiercheck.budget import Budget
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.memory import close_share
from convoy_agents.tiercheck.shares import OVERHEAD

_UID = re.compile(r"[A-Za-z0-9-]{1,64}")
_THREADS = 4
"""Maximum number of threads that compute digests. One core computes 10 GB/s, so the threads are seldom the
bottleneck.
"""

log = structlog.get_logger()


class MemoryManager:
    """The memory of every job on this node, in one folder. It calls `changed` when the result of
    `slot_tokens` has changed.
    """

    def __init__(self, folder: Path, limit: int, changed: Callable[[], None]) -> None:
        """`limit`: maximum bytes of memory for all jobs together."""
        self.budget = Budget(limit)
        self._folder = folder
        self._changed = changed
        self._pool = ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1), "digest")
        self._jobs: dict[str, JobMemory] = {}
        self._making_room = asyncio.Lock()
        metrics.CHECKPOINT_BYTES.set_function(lambda: self.budget.used)
        metrics.CHECKPOINT_LIMIT.set(limit)

    @property
    def jobs(self) -> list[str]:
        """The uids of the jobs that may have memory on this node, sorted."""
        return sorted(self._jobs)

    @property
    def slot_tokens(self) -> list[tuple[str, str]]:
        """The jobs in `jobs`, as pairs (job uid, slot token). The token is empty until the first survey of
        the job's memory.
        """
        return [(uid, self._jobs[uid].slot_token) for uid in self.jobs]

    def get(self, job_uid: str) -> JobMemory | None:
        """Return the job's memory on this node; None if the job has none."""
        return self._jobs.get(job_uid)

    def open(self, job_uid: str) -> JobMemory:
        """Return the job's memory. Create the JobMemory on first use. Raises ValueError if the uid is
        invalid.
        """
        if not _UID.fullmatch(job_uid):
            raise ValueError(f"{job_uid!r} is not a uid")
        job_memory = self._jobs.get(job_uid)
        if job_memory is None:
            job_memory = self._job_memory(job_uid, self._folder / job_uid)
            self._jobs[job_uid] = job_memory
            self._changed()
        return job_memory

    async def set_slot_token(self, job_memory: JobMemory, slot_token: str) -> None:
        """Store the slot token of the job's shards and report it to the hub. Raises OSError if that fails."""
        if slot_token != job_memory.slot_token:
            await job_memory.set_slot_token(slot_token)
            self._changed()

    async def recover(self) -> None:
        """Recover the memory of all jobs that an earlier agent left."""
        await asyncio.to_thread(self._folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        for folder in await asyncio.to_thread(lambda: sorted(self._folder.iterdir())):
            if not folder.is_mount():
                # The folder is no mount point, so it has no files: the earlier agent ended before it mounted
                # the tmpfs or after it unmounted it.
                await asyncio.to_thread(close_share, folder)
                continue
            job_memory = self._job_memory(folder.name, folder)
            try:
                await job_memory.recover()
            except OSError as error:
                log.error("cannot read a job's checkpoints in memory", job_uid=folder.name, why=str(error))
            self._jobs[folder.name] = job_memory
        self._changed()

    async def make_room(self, job_uid: str, missing: int) -> bool:
        """Release memory of jobs that have tiers by default, the largest first, until `missing` bytes are
        free. Return True on success. Release nothing if these jobs have too little.

        `job_uid`: the job that needs the memory.
        """
        async with self._making_room:
            shares = self.budget.shares
            given = [one for one in self._jobs.values() if one.by_default and one.job_uid != job_uid]
            given.sort(key=lambda one: (-shares.get(one.job_uid, 0), one.job_uid))
            if sum(self._released_by(one) for one in given) < missing:
                return False
            free = 0
            for one in given:
                if free >= missing:
                    break
                size = self._released_by(one)
                if size and await one.release(f"a job that has tiers in its spec ({job_uid})"):
                    log.warning(
                        "checkpoints that a job has by default released for another job",
                        job_uid=one.job_uid,
                        released_bytes=size,
                        other_job_uid=job_uid,
                    )
                    free += size
            return free >= missing

    def _released_by(self, job_memory: JobMemory) -> int:
        """Return the bytes that a release of the job's memory would free."""
        return max(0, self.budget.shares.get(job_memory.job_uid, 0) - OVERHEAD)

    def _job_memory(self, job_uid: str, folder: Path) -> JobMemory:
        return JobMemory(job_uid, folder, self.budget, self._pool, self.make_room)

    async def drop_job(self, job_uid: str) -> None:
        """Release the memory of a job that has ended."""
        job_memory = self._jobs.get(job_uid)
        if job_memory is None:
            return
        try:
            await job_memory.close()
        except OSError as error:
            log.error("memory of a finished job not released; retrying", job_uid=job_uid, why=str(error))
            return
        log.info("memory of a finished job released", job_uid=job_uid)
        self._jobs.pop(job_uid, None)
        self._changed()
