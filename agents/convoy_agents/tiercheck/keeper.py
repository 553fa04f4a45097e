"""The jobs of which this node's memory holds checkpoints."""

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
from convoy_agents.tiercheck.holding import Holding
from convoy_agents.tiercheck.memory import close_share

_UID = re.compile(r"[A-Za-z0-9-]{1,64}")
_THREADS = 4
"""That take digests; one core reads 10 GB/s, so they are seldom the bound."""

log = structlog.get_logger()


class Keeper:
    """One holding per job, below one folder. `changed` is called whenever a job comes or goes."""

    def __init__(self, folder: Path, limit: int, changed: Callable[[], None]) -> None:
        """`limit`: bytes of memory for all jobs together."""
        self.budget = Budget(limit)
        self._folder = folder
        self._changed = changed
        self._pool = ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1), "digest")
        self._holdings: dict[str, Holding] = {}
        metrics.CHECKPOINT_BYTES.set_function(lambda: self.budget.used)
        metrics.CHECKPOINT_LIMIT.set(limit)

    @property
    def jobs(self) -> list[str]:
        """Uids, of which something may lie here."""
        return sorted(self._holdings)

    @property
    def held(self) -> list[tuple[str, str]]:
        """(uid, warrant) of these jobs; empty where nothing has come by any yet."""
        return [(uid, self._holdings[uid].warrant) for uid in self.jobs]

    def get(self, job_uid: str) -> Holding | None:
        """The job's memory; None when it has none here."""
        return self._holdings.get(job_uid)

    def open(self, job_uid: str) -> Holding:
        """The job's memory, which is made when somebody first uses it. ValueError for what is no uid."""
        if not _UID.fullmatch(job_uid):
            raise ValueError(f"{job_uid!r} is no uid")
        holding = self._holdings.get(job_uid)
        if holding is None:
            holding = Holding(job_uid, self._folder / job_uid, self.budget, self._pool)
            self._holdings[job_uid] = holding
            self._changed()
        return holding

    async def warranted(self, holding: Holding, warrant: str) -> None:
        """What the job has here lies here by this warrant: the hub hears of it. OSError."""
        if warrant != holding.warrant:
            await holding.warranted(warrant)
            self._changed()

    async def recover(self) -> None:
        """Takes over what an earlier agent has kept."""
        await asyncio.to_thread(self._folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        for folder in await asyncio.to_thread(lambda: sorted(self._folder.iterdir())):
            if not folder.is_mount():
                # An agent ended before there was memory, or after it was given back.
                await asyncio.to_thread(close_share, folder)
                continue
            holding = Holding(folder.name, folder, self.budget, self._pool)
            try:
                await holding.recover()
            except OSError as error:
                log.error("checkpoints in memory cannot be read", job_uid=folder.name, why=str(error))
            self._holdings[folder.name] = holding
        self._changed()

    async def forget(self, job_uid: str) -> None:
        """The job is over: its memory is given back."""
        holding = self._holdings.get(job_uid)
        if holding is None:
            return
        try:
            await holding.close()
        except OSError as error:
            log.error("memory not given back", job_uid=job_uid, why=str(error))
            return
        log.info("memory given back", job_uid=job_uid)
        self._holdings.pop(job_uid, None)
        self._changed()
