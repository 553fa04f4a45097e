"""How a generation's shards get from a node's memory to the job's store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial

import structlog

from convoy_agents import metrics
from convoy_agents.backoff import Backoff
from convoy_agents.pods.assignment import Assignment
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.remote import Remotes
from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_agents.tiercheck.stores.errors import Damaged, Stopped, StoreError
from convoy_agents.tiercheck.trouble_reporter import TroubleReporter
from convoy_controllers.checkpoint import retention
from convoy_controllers.checkpoint.generation import Generation, Tier

UPLOAD_SECONDS = 3600.0
"""For all slots to bring a generation to the store; then it stays in memory alone."""
RECHECK_EVERY = 4
"""Times that a generation is not committed after which a slot looks whether its shards are still there."""

CommitInStore = Callable[[Assignment, JobMemory, Generation], Awaitable[bool | None]]
"""Asks for the commit in the store: whether the generation stands there; None while that is open."""

log = structlog.get_logger()


class Uploads:
    """One at a time for each pod of the node."""

    def __init__(
        self,
        remotes: Remotes,
        troubles: TroubleReporter,
        commit: CommitInStore,
        is_current: Callable[[Assignment], bool],
    ) -> None:
        """`is_current`: whether a pod is here, and in the same incarnation still."""
        self._remotes = remotes
        self._troubles = troubles
        self._commit = commit
        self._is_current = is_current
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By pod."""

    def start(
        self, plan: Assignment, job_memory: JobMemory, generation: Generation, keys: Collection[str]
    ) -> None:
        """Brings shards to the store; the pod's last ones, if they are not there yet, give way."""
        if (before := self._tasks.pop(plan.pod_uid, None)) is not None:
            log.warning("upload gives way to the next", job=plan.job, **generation._asdict())
            before.cancel()
        task = asyncio.create_task(self._store(plan, job_memory, generation, keys))
        self._tasks[plan.pod_uid] = task
        task.add_done_callback(partial(self._ended, plan, job_memory, generation))

    def drop_pod(self, uid: str) -> None:
        """The pod left."""
        if uid in self._tasks:
            self._tasks[uid].cancel()

    async def close(self) -> None:
        """Ends every upload."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(
        self, plan: Assignment, job_memory: JobMemory, generation: Generation, task: asyncio.Task[None]
    ) -> None:
        if self._tasks.get(plan.pod_uid) is task:
            del self._tasks[plan.pod_uid]
        if task.cancelled() or (error := task.exception()) is None:
            return
        known = isinstance(error, Damaged | Stopped)
        log.error(
            "upload ended",
            job=plan.job,
            why=str(error),
            exc_info=None if known else error,
            **generation._asdict(),
        )
        # Memory that is given back while the job ends is no news.
        if self._is_current(plan) and not job_memory.closed:
            self._troubles.upload_failed(plan, generation, error)

    async def _store(
        self, plan: Assignment, job_memory: JobMemory, generation: Generation, keys: Collection[str]
    ) -> None:
        """Damaged or Stopped when a shard cannot be sent."""
        started, result = time.monotonic(), "failed"
        deadline = started + UPLOAD_SECONDS
        pause = Backoff(first=1.0, cap=30.0)
        queue = UploadQueue(keys)
        full = swept = False
        job_memory.start_upload(keys)
        try:
            while time.monotonic() < deadline and self._is_current(plan):
                try:
                    if full and not swept:
                        # What follows a commit otherwise, and without room there is none.
                        swept = True
                        await self._remotes.collect_garbage(plan)
                    if (key := queue.next) is not None:
                        await self._remotes.upload(plan, job_memory, key)
                        queue.sent()
                        pause.reset()
                        continue
                    stands = await self._commit(plan, job_memory, generation)
                except StoreError as error:
                    metrics.STORE_ERRORS.inc()
                    log.warning("shard not uploaded", job=plan.job, why=str(error), **generation._asdict())
                    self._troubles.not_stored(plan, generation, error)
                    full = error.full
                else:
                    if stands is not None:
                        if stands:
                            self._troubles.stored(plan)
                            metrics.UPLOAD_SECONDS.observe(time.monotonic() - started)
                        result = "stored" if stands else "refused"
                        return
                    queue.commit_pending()
                await asyncio.sleep(pause.next())
            if not self._is_current(plan):
                result = "superseded"
        except asyncio.CancelledError:
            result = "superseded"
            raise
        finally:
            metrics.UPLOADS.labels(result).inc()
            await job_memory.end_upload(keys)


class UploadQueue:
    """Which shards are to be sent, one after another. Pure."""

    def __init__(self, keys: Collection[str]) -> None:
        self._keys = sorted(keys)
        self._sent = 0
        self._opened = 0

    @property
    def next(self) -> str | None:
        """The one to be sent; None when all are there."""
        return self._keys[self._sent] if self._sent < len(self._keys) else None

    def sent(self) -> None:
        """It is there."""
        self._sent += 1

    def commit_pending(self) -> None:
        """The generation is not committed, mostly since other slots are not done yet. But what was brought
        there may be gone by now: all is looked for now and then, and what is missing sent again.
        """
        self._opened += 1
        if self._opened % RECHECK_EVERY == 0:
            self._sent = 0


def unfinished(store: ShardStore, plan: Assignment) -> tuple[Generation, set[str]] | None:
    """What an agent before this one was bringing to the store for a pod: the generation, and its shards with
    what they extend.
    """
    there = store.marks.get(Tier.REMOTE)
    for generation in sorted(store.records, reverse=True):
        record = store.records[generation]
        if generation.incarnation != plan.incarnation or (there and generation <= there):
            return None
        heads = [record.shards[str(rank)] for rank in plan.ranks if str(rank) in record.shards]
        manifests = store.manifests
        keys = retention.reachable(heads, manifests)
        if record.remote and keys <= manifests.keys():
            return generation, keys
    return None
