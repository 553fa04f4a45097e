"""The server for the memory requests of ranks. It handles the requests of each connection one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import structlog

from convoy_agents import metrics
from convoy_agents.pods.assignment import Assignment
from convoy_agents.pods.fields import MessageError
from convoy_agents.pods.state import PodState
from convoy_agents.tiercheck.buffers import BASES, SEGMENTS
from convoy_agents.tiercheck.committer import Committer
from convoy_agents.tiercheck.deciding import RestoreFailed
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.job_share import BudgetExceeded
from convoy_agents.tiercheck.memory import ShareExhausted
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.memory_use import MemoryUse
from convoy_agents.tiercheck.pod_restore import PodRestore
from convoy_agents.tiercheck.rank_connection import RankConnection, handle_frames
from convoy_agents.tiercheck.rank_requests import (
    Abandon,
    FetchShard,
    Inexact,
    Poll,
    RankRequest,
    Reserve,
    Restore,
    Restored,
    Seal,
    parse,
)
from convoy_agents.tiercheck.rank_status import status_of
from convoy_agents.tiercheck.restoring import Restores
from convoy_agents.tiercheck.shard_record import ShardMetadata
from convoy_agents.tiercheck.shard_sealer import WrittenBuffer
from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_agents.tiercheck.trouble_reporter import TroubleReporter
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import START_STEP, Generation
from convoy_controllers.checkpoint.records import Record

T = TypeVar("T")

BUFFERS = 2
"""Number of buffers that each rank has for full saves. One holds the last committed shard while the rank
writes the next shard into the other.

If the job has a store, each rank has one more, since a shard also stays until it is uploaded.
"""
POLL_SECONDS = 5.0
"""Seconds after which the server replies to a poll even if the status has not changed."""
WAIT_SECONDS = 5.0
"""Seconds between the `wait` frames that a rank gets while its request is being handled."""
_OUTCOMES = {
    hub_pb2.ResumeReply.FOUND: "found",
    hub_pb2.ResumeReply.FRESH: "fresh",
    hub_pb2.ResumeReply.LOST: "lost",
}
SAVING, READING = "saving", "reading"
"""Purposes for which a rank needs memory."""

log = structlog.get_logger()


@dataclass(slots=True)
class _RestoredShards:
    """The shards from which the pods of one job on this node have restored."""

    fetched: set[str] = field(default_factory=set)
    """Ids of the shards that were fetched to this node for the restore."""
    kept: set[str] = field(default_factory=set)
    """Ids of the shards that must stay on this node after the restore."""


class RankServer:
    """The server for all ranks on one node."""

    def __init__(
        self,
        memory_manager: MemoryManager,
        restores: Restores,
        committer: Committer,
        pods: Callable[[], Iterable[PodState]],
        troubles: TroubleReporter,
        use: MemoryUse,
    ) -> None:
        self._memory_manager = memory_manager
        self._use = use
        self._restores = restores
        self._committer = committer
        self._pods = pods
        self._troubles = troubles
        self._pod_restores: dict[str, PodRestore] = {}
        """The restore that each pod is doing, by pod uid."""
        self._pod_locks: dict[tuple[str, int], asyncio.Lock] = {}
        self._restored_shards: dict[str, _RestoredShards] = {}
        """Shards of the restores that are finished, by job uid."""

    async def serve(self, pod: Callable[[], PodState], connection: RankConnection) -> None:
        """Serve a rank until it disconnects or its incarnation ends. Raises MessageError for an invalid
        request.

        `pod`: returns the pod's current state.
        """
        await handle_frames(connection, lambda: pod().assignment, self._handle_frame)

    def drop_pod(self, uid: str) -> None:
        """Drop the unfinished restore of a pod that left the node."""
        self._use.drop_pod(uid)
        if (left := self._pod_restores.pop(uid, None)) is not None:
            left.cancel()
        for key in [key for key in self._pod_locks if key[0] == uid]:
            del self._pod_locks[key]

    def drop_job(self, job_uid: str) -> None:
        """Drop the list of restored shards of a job whose memory was released."""
        self._restored_shards.pop(job_uid, None)

    async def _handle_frame(
        self, plan: Assignment, connection: RankConnection, frame: dict[str, Any]
    ) -> None:
        request = parse(frame)
        if plan.memory is None:
            await connection.send({"type": "refused", "why": "the job has no checkpoint tier in memory"})
            return
        try:
            await self._handle(plan, connection, request)
        except (ConnectionError, TimeoutError, MessageError):
            raise
        except RestoreFailed as error:
            if error.memory:
                self._troubles.memory_refused(plan, connection.rank, READING, str(error))
            await connection.send(
                {"type": "failed", "why": str(error), "store": error.store, "memory": error.memory}
            )
        except (BudgetExceeded, ShareExhausted) as error:
            answer = shortage_frame(error)
            what = READING if isinstance(request, Restore | FetchShard | Restored) else SAVING
            self._troubles.memory_refused(plan, connection.rank, what, answer["why"])
            await connection.send(answer)
        except (OSError, ValueError) as error:
            log.error("a rank's request failed", job=plan.job, kind=frame["type"], why=str(error))
            await connection.send({"type": "failed", "why": str(error)})

    async def _handle(self, plan: Assignment, connection: RankConnection, request: RankRequest) -> None:
        match request:
            case Reserve():
                await self._reserve(plan, connection, request)
            case Poll():
                await self._poll(plan, connection, request.known)
            case Seal():
                await with_wait_frames(connection, self._seal(plan, connection, request))
            case Abandon():
                await self._committer.abandon(plan.pod_uid, Generation(plan.incarnation, request.step))
                await connection.send({"type": "noted"})
            case Inexact():
                self._troubles.inexact(plan, connection.rank, request.what)
                await connection.send({"type": "noted"})
            case Restore():
                await self._restore(plan, connection, request)
            case FetchShard():
                await self._shard(connection, plan, request.shard)
            case Restored():
                await self._restored(plan, connection, request.declined)

    # Saves.

    async def _reserve(self, plan: Assignment, connection: RankConnection, wanted: Reserve) -> None:
        job_memory = self._open(plan)
        owners = [str(rank) for one in self._plans(plan) for rank in one.ranks]
        limit = plan.memory_limit
        kind = SEGMENTS if wanted.segments else BASES
        count = wanted.segments or BUFFERS + bool(plan.memory and plan.memory.store)
        if kind == BASES:
            own = job_memory.limit(limit)
            self._use.record(plan, connection.rank, count * wanted.size, own)
        work = job_memory.reserve(str(connection.rank), count, wanted.size, owners, limit, kind)
        try:
            buffers: list[Path] = await with_wait_frames(connection, work)
        except (BudgetExceeded, ShareExhausted) as error:
            if kind == BASES:
                raise
            # Full saves work without a journal. So a refusal of memory for journal segments is not reported
            # as a trouble of the job.
            await connection.send(shortage_frame(error))
            return
        if kind == BASES:
            job_memory.yielded = ""
            self._troubles.memory_granted(plan, connection.rank, SAVING)
        answer = {"type": "buffers", "names": [path.name for path in buffers]}
        await connection.send(
            {**answer, "copies": plan.memory.copies if plan.memory else 0}, buffers, write=True
        )

    async def _poll(self, plan: Assignment, connection: RankConnection, known: str) -> None:
        owner, job_memory = str(connection.rank), self._open(plan)

        self._troubles.yielded(plan, job_memory.yielded)

        def changed_status(store: ShardStore) -> str | None:
            found = status_of(store, plan, owner, job_memory.releases)
            return None if found == known else found

        found = await job_memory.wait_until(changed_status, POLL_SECONDS) or known
        await connection.send({"type": "status", "status": found})

    async def _seal(self, plan: Assignment, connection: RankConnection, seal: Seal) -> None:
        owner, job_memory = str(connection.rank), self._open(plan)
        generation = Generation(plan.incarnation, seal.step)
        if seal.step == START_STEP:
            raise ValueError(f"step: there is nothing to save at step {START_STEP}")

        def already_sealed(store: ShardStore) -> bool:
            """Return True if the shard is sealed already: the rank did not get the reply and repeats its
            request.
            """
            return generation in store.sealed_generations([owner], plan.incarnation)

        seconds = 0.0
        if not await job_memory.inspect(already_sealed):
            metadata = ShardMetadata(seal.world, seal.torch, seal.plan, seal.last)
            written = WrittenBuffer(seal.buffer, owner, seal.length, metadata)
            extends = Generation(*seal.extends) if seal.extends else None
            done = await job_memory.sealer.seal(written, generation, extends)
            seconds = done.seconds
        await self._committer.commit_sealed(plan.pod_uid)
        await connection.send({"type": "sealed", "seconds": seconds})

    # Restores.

    async def _restore(self, plan: Assignment, connection: RankConnection, request: Restore) -> None:
        self._use.record(plan, connection.rank, 0, self._open(plan).limit(plan.memory_limit))
        pod_restore = await with_wait_frames(connection, self._pod_restore(plan, request))
        if request.whole:
            self._restores.start_fetches(pod_restore)
        if pod_restore.reply.outcome == pod_restore.reply.LOST:
            self._troubles.checkpoints_lost(plan, pod_restore.reply.message or "no generation is complete")
        found: Record | None = None
        if (chosen := pod_restore.chosen) is not None:
            job_memory = self._open(plan)
            found = await job_memory.inspect(lambda store: store.records.get(chosen))
        await connection.send(
            {
                "type": "restore",
                "generation": list(chosen) if chosen else None,
                "world": found.world if found else 0,
                "torch": found.torch if found else "",
                "shards": pod_restore.shards,
                "message": pod_restore.reply.message,
                "lost": pod_restore.reply.outcome == pod_restore.reply.LOST,
            }
        )

    async def _pod_restore(self, plan: Assignment, request: Restore) -> PodRestore:
        """Return the restore that all ranks of the pod share. Start it if this is the pod's first request
        with this number of the attempt in this incarnation.
        """
        uid = plan.pod_uid
        async with self._pod_locks.setdefault((uid, plan.incarnation), asyncio.Lock()):
            known = self._pod_restores.get(uid)
            if known is None or known.plan.incarnation != plan.incarnation or known.attempt < request.attempt:
                known = await self._start_pod_restore(plan, request, known)
                # The pod may have left the node during the await, so that `drop_pod` has already run. Add no
                # entry then, because nothing would remove it.
                if any(one.uid == uid for one in self._pods()):
                    if (before := self._pod_restores.get(uid)) is not None:
                        before.cancel()
                    self._pod_restores[uid] = known
                else:
                    known.cancel()
            return known

    async def _start_pod_restore(
        self, plan: Assignment, request: Restore, before: PodRestore | None
    ) -> PodRestore:
        """Start a restore of the pod. `before`: the pod's previous restore, or None; it belongs to an
        earlier attempt or incarnation.
        """
        again = before is not None and before.plan.incarnation == plan.incarnation
        started = before.started if before is not None and again else time.monotonic()
        try:
            pod_restore = await self._restores.resume(
                plan, request.attempt, request.broken, bases=request.bases
            )
        except RestoreFailed:
            metrics.RESTORES.labels("failed").inc()
            raise
        outcome = _OUTCOMES.get(pod_restore.reply.outcome)
        if outcome and not again:
            metrics.RESTORES.labels(outcome).inc()
        pod_restore.started = started
        return pod_restore

    async def _shard(self, connection: RankConnection, plan: Assignment, shard: str) -> None:
        pod_restore = self._pod_restores.get(plan.pod_uid)
        if pod_restore is None or pod_restore.plan.incarnation != plan.incarnation:
            raise RestoreFailed("the restore of this incarnation is unknown; the rank must start again")
        job_memory = self._open(plan)
        paths, lengths = [], []
        for key, places in pod_restore.chain(shard):
            broken = await with_wait_frames(connection, self._restores.fetch(pod_restore, key, places))

            def find(store: ShardStore, key: str = key) -> tuple[Path, int] | None:
                manifest = store.manifest(key)
                return (store.path(key), manifest.length) if manifest is not None else None

            found = await job_memory.inspect(find)
            if found is None:
                await connection.send({"type": "broken", "broken": [list(one) for one in broken]})
                return
            paths.append(found[0])
            lengths.append(found[1])
        if not paths:
            raise ValueError(f"the restored generation has no shard {shard[:40]!r}")
        await connection.send({"type": "shard", "lengths": lengths}, paths)

    async def _restored(self, plan: Assignment, connection: RankConnection, declined: bool) -> None:
        pod_restore = self._pod_restores.get(plan.pod_uid)
        if pod_restore is not None and pod_restore.plan.incarnation == plan.incarnation:
            pod_restore.left.discard(connection.rank)
            if not pod_restore.left:
                del self._pod_restores[plan.pod_uid]
                pod_restore.cancel()  # A rank that declines does not wait for all shards.
                if pod_restore.chosen is not None:
                    metrics.RESTORE_SECONDS.observe(time.monotonic() - pod_restore.started)
                await self._finish_pod_restore(pod_restore)
        if not declined:
            self._troubles.memory_granted(plan, connection.rank, READING)
        await connection.send({"type": "done"})

    async def _finish_pod_restore(self, pod_restore: PodRestore) -> None:
        """Start to copy the restored shards to other nodes, so that they survive a failure of this node.
        The caller ensures that all ranks of the pod have read their shards.
        """
        plan = pod_restore.plan
        job_memory: JobMemory = self._open(plan)
        shards = self._restored_shards.setdefault(plan.job_uid, _RestoredShards())
        shards.kept |= await self._committer.copy_restored(plan.pod_uid, pod_restore)
        shards.fetched |= pod_restore.fetched
        others = [one.plan for one in self._pod_restores.values() if one.plan.job_uid == plan.job_uid]
        # Keep the shards while another pod of the job on this node is restoring in this incarnation or a
        # later one. Restores of earlier incarnations do not count, because they never finish.
        if not any(one.incarnation >= plan.incarnation for one in others):
            await job_memory.unpin(shards.fetched - shards.kept)
            self._restored_shards.pop(plan.job_uid, None)

    def _open(self, plan: Assignment) -> JobMemory:
        """Return the memory of the pod's job."""
        job_memory = self._memory_manager.open(plan.job_uid)
        job_memory.by_default = plan.memory is not None and plan.memory.by_default
        return job_memory

    def _plans(self, plan: Assignment) -> list[Assignment]:
        """Return the assignments of the pods on this node that have the job and incarnation of `plan`."""
        plans = [one.assignment for one in self._pods() if one.assignment]
        return [one for one in plans if (one.job_uid, one.incarnation) == (plan.job_uid, plan.incarnation)]


async def with_wait_frames(connection: RankConnection, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. Until it is done, send the rank a `wait` frame every WAIT_SECONDS."""
    task = asyncio.create_task(work)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=WAIT_SECONDS)
            if done:
                return task.result()
            await connection.send({"type": "wait"})
    finally:
        if not task.done():
            task.cancel()


def shortage_frame(error: BudgetExceeded | ShareExhausted) -> dict[str, Any]:
    """Return the reply that refuses memory, with the missing bytes."""
    missing = error.missing if isinstance(error, ShareExhausted) else error.refusal.missing
    return {"type": "refused", "missing": missing, "why": str(error)}
