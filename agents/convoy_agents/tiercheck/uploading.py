"""Uploads of generations from a node's memory to the job's store."""

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
"""Seconds within which all slots must upload a generation. After this time, a slot stops uploading the
generation.
"""
RECHECK_EVERY = 4
"""Number of commit requests without a decision after which a slot checks again that its shards are in the
store.
"""

CommitInStore = Callable[[Assignment, JobMemory, Generation], Awaitable[bool | None]]
"""A function that requests the commit of a generation in the store. It returns True if the generation is
committed, False if the commit is refused, None if there is no decision yet.
"""

log = structlog.get_logger()


class Uploads:
    """The uploads of the pods on one node. Each pod has at most one at a time."""

    def __init__(
        self,
        remotes: Remotes,
        troubles: TroubleReporter,
        commit: CommitInStore,
        is_current: Callable[[Assignment], bool],
    ) -> None:
        """`is_current`: returns True if the pod is on this node and still in the assignment's incarnation."""
        self._remotes = remotes
        self._troubles = troubles
        self._commit = commit
        self._is_current = is_current
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Upload tasks by pod uid."""

    def start(
        self, plan: Assignment, job_memory: JobMemory, generation: Generation, keys: Collection[str]
    ) -> None:
        """Start to upload a generation. An unfinished upload of the same pod is cancelled."""
        if (before := self._tasks.pop(plan.pod_uid, None)) is not None:
            log.warning(
                "unfinished upload cancelled: a newer generation replaces it",
                job=plan.job,
                **generation._asdict(),
            )
            before.cancel()
        task = asyncio.create_task(self._store(plan, job_memory, generation, keys))
        self._tasks[plan.pod_uid] = task
        task.add_done_callback(partial(self._ended, plan, job_memory, generation))

    def drop_pod(self, uid: str) -> None:
        """Cancel the upload of a pod that left the node."""
        if uid in self._tasks:
            self._tasks[uid].cancel()

    async def close(self) -> None:
        """Cancel all uploads."""
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
        # After the end of a job its memory is released, so its running upload fails. Report a failure only
        # for a running job.
        if self._is_current(plan) and not job_memory.closed:
            self._troubles.upload_failed(plan, generation, error)

    async def _store(
        self, plan: Assignment, job_memory: JobMemory, generation: Generation, keys: Collection[str]
    ) -> None:
        """Upload the shards, then request the commit. Raises Damaged or Stopped if a shard cannot be sent."""
        started, result = time.monotonic(), "failed"
        deadline = started + UPLOAD_SECONDS
        pause = Backoff(first=1.0, cap=30.0)
        queue = UploadQueue(keys)
        full = collected = False
        job_memory.start_upload(keys)
        try:
            while time.monotonic() < deadline and self._is_current(plan):
                try:
                    if full and not collected:
                        # The store is full, so it accepts no commit. Collect garbage now, although this
                        # otherwise follows a commit.
                        collected = True
                        await self._remotes.collect_garbage(plan)
                    if (key := queue.next) is not None:
                        await self._remotes.upload(plan, job_memory, key)
                        queue.mark_sent()
                        pause.reset()
                        continue
                    stands = await self._commit(plan, job_memory, generation)
                except StoreError as error:
                    metrics.STORE_ERRORS.inc()
                    log.warning(
                        "upload to the store failed; retrying",
                        job=plan.job,
                        why=str(error),
                        **generation._asdict(),
                    )
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
    """The shards of one generation that must be uploaded, in order. Pure."""

    def __init__(self, keys: Collection[str]) -> None:
        self._keys = sorted(keys)
        self._sent = 0
        self._opened = 0

    @property
    def next(self) -> str | None:
        """The id of the next shard to upload; None if all are in the store."""
        return self._keys[self._sent] if self._sent < len(self._keys) else None

    def mark_sent(self) -> None:
        """Record that the shard `next` is in the store."""
        self._sent += 1

    def commit_pending(self) -> None:
        """Record that a commit request got no decision, usually because other slots are still uploading.

        While this slot waits, garbage collection may delete its uploaded objects. So at every
        RECHECK_EVERY-th call, the queue starts again with the first shard.
        """
        self._opened += 1
        if self._opened % RECHECK_EVERY == 0:
            self._sent = 0


def unfinished_upload(store: ShardStore, plan: Assignment) -> tuple[Generation, set[str]] | None:
    """Return the generation that an earlier agent was uploading for a pod, and the ids of its shards and of
    all that they extend. Return None if no upload was interrupted.
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
