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

_UID = re.compile(r"[A-Za-z0-9-]{1,64}")
_THREADS = 4
"""Threads that compute digests. One core computes 10 GB/s, so they are seldom the bottleneck."""

log = structlog.get_logger()


class MemoryManager:
    """The JobMemory of each job, below one folder. `changed` is called when a job is added or removed."""

    def __init__(self, folder: Path, limit: int, changed: Callable[[], None]) -> None:
        """`limit`: bytes of memory for all jobs together."""
        self.budget = Budget(limit)
        self._folder = folder
        self._changed = changed
        self._pool = ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1), "digest")
        self._jobs: dict[str, JobMemory] = {}
        metrics.CHECKPOINT_BYTES.set_function(lambda: self.budget.used)
        metrics.CHECKPOINT_LIMIT.set(limit)

    @property
    def jobs(self) -> list[str]:
        """Uids of the jobs that may have memory here."""
        return sorted(self._jobs)

    @property
    def slot_tokens(self) -> list[tuple[str, str]]:
        """Pairs (uid, slot token) of these jobs. The token is empty until something is stored with one."""
        return [(uid, self._jobs[uid].slot_token) for uid in self.jobs]

    def get(self, job_uid: str) -> JobMemory | None:
        """Return the job's memory; None if it has none here."""
        return self._jobs.get(job_uid)

    def open(self, job_uid: str) -> JobMemory:
        """Return the job's memory, which is made on first use. ValueError for an invalid uid."""
        if not _UID.fullmatch(job_uid):
            raise ValueError(f"{job_uid!r} is not a uid")
        job_memory = self._jobs.get(job_uid)
        if job_memory is None:
            job_memory = JobMemory(job_uid, self._folder / job_uid, self.budget, self._pool)
            self._jobs[job_uid] = job_memory
            self._changed()
        return job_memory

    async def set_slot_token(self, job_memory: JobMemory, slot_token: str) -> None:
        """Record the slot token of the job's shards, and report it to the hub. OSError."""
        if slot_token != job_memory.slot_token:
            await job_memory.set_slot_token(slot_token)
            self._changed()

    async def recover(self) -> None:
        """Take over the memory that an earlier agent left."""
        await asyncio.to_thread(self._folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        for folder in await asyncio.to_thread(lambda: sorted(self._folder.iterdir())):
            if not folder.is_mount():
                # The agent ended before the tmpfs was mounted, or after it was unmounted.
                await asyncio.to_thread(close_share, folder)
                continue
            job_memory = JobMemory(folder.name, folder, self.budget, self._pool)
            try:
                await job_memory.recover()
            except OSError as error:
                log.error("cannot read a job's checkpoints in memory", job_uid=folder.name, why=str(error))
            self._jobs[folder.name] = job_memory
        self._changed()

    async def drop_job(self, job_uid: str) -> None:
        """Release the memory of a job that is over."""
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
