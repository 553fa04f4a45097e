"""The ranks' questions to their node's memory, answered one after another on each rank's line."""

from __future__ import annotations

import asyncio
import json
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
from convoy_agents.tiercheck.alarms import Alarms
from convoy_agents.tiercheck.buffers import BASES, SEGMENTS
from convoy_agents.tiercheck.committer import Committer
from convoy_agents.tiercheck.deciding import Failed
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.job_share import Refused
from convoy_agents.tiercheck.line import Line
from convoy_agents.tiercheck.memory import NoRoom
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.questions import (
    Abandon,
    Inexact,
    Look,
    Question,
    Reserve,
    Restore,
    Restored,
    Seal,
    WantShard,
    parse,
)
from convoy_agents.tiercheck.restoring import Reading, Restores
from convoy_agents.tiercheck.shard_record import ShardMetadata
from convoy_agents.tiercheck.shard_sealer import WrittenBuffer
from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import START_STEP, Generation
from convoy_controllers.checkpoint.records import Record

T = TypeVar("T")

SLOTS = 2
"""Slots of each rank: one holds the shard that the watermarks stand on while the other is written. With a
store each rank has one more, since a shard stays until the store has it.
"""
LOOK_SECONDS = 5.0
"""Seconds after which a rank gets the state again although nothing has changed."""
WAIT_SECONDS = 5.0
"""A rank whose question takes long is told so this often."""
_OUTCOMES = {
    hub_pb2.ResumeReply.FOUND: "found",
    hub_pb2.ResumeReply.FRESH: "fresh",
    hub_pb2.ResumeReply.LOST: "lost",
}
SAVING, READING = "saving", "reading"
"""Purposes of a rank's share of the memory."""

log = structlog.get_logger()


@dataclass(slots=True)
class _RestoredShards:
    """The shards that one job's pods of this node have restored from."""

    fetched: set[str] = field(default_factory=set)
    """Shards that are here to be read alone."""
    kept: set[str] = field(default_factory=set)
    """Those of them that its pods are to keep."""


class Ranks:
    """The server of one node's ranks."""

    def __init__(
        self,
        memory_manager: MemoryManager,
        restores: Restores,
        committer: Committer,
        pods: Callable[[], Iterable[PodState]],
        alarms: Alarms,
    ) -> None:
        self._memory_manager = memory_manager
        self._restores = restores
        self._committer = committer
        self._pods = pods
        self._alarms = alarms
        self._readings: dict[str, Reading] = {}
        """Readings by pod."""
        self._turns: dict[tuple[str, int], asyncio.Lock] = {}
        self._restored_shards: dict[str, _RestoredShards] = {}
        """Restored shards by job."""

    async def serve(self, pod: Callable[[], PodState], line: Line) -> None:
        """Answers a rank until it hangs up, or its incarnation is over. MessageError for what is no question.

        `pod`: as it is now.
        """
        async for frame in line.frames:
            plan = pod().assignment
            if plan is None or plan.incarnation != line.incarnation or line.rank not in plan.ranks:
                return
            try:
                await self._answer(plan, line, frame)
            except (ConnectionError, TimeoutError):
                return

    def forget(self, uid: str) -> None:
        """The pod left."""
        self._readings.pop(uid, None)
        for key in [key for key in self._turns if key[0] == uid]:
            del self._turns[key]

    def job_over(self, job_uid: str) -> None:
        """Its memory is given back, and so is what was here to be read."""
        self._restored_shards.pop(job_uid, None)

    async def _answer(self, plan: Assignment, line: Line, frame: dict[str, Any]) -> None:
        question = parse(frame)
        if plan.memory is None:
            await line.send({"type": "refused", "why": "the job keeps nothing in memory"})
            return
        try:
            await self._do(plan, line, question)
        except (ConnectionError, TimeoutError, MessageError):
            raise
        except Failed as error:
            if error.memory:
                self._alarms.no_room(plan, line.rank, READING, str(error))
            await line.send({"type": "failed", "why": str(error), "store": error.store})
        except (Refused, NoRoom) as error:
            answer = _shortage(error)
            what = READING if isinstance(question, Restore | WantShard | Restored) else SAVING
            self._alarms.no_room(plan, line.rank, what, answer["why"])
            await line.send(answer)
        except (OSError, ValueError) as error:
            log.error("question not answered", job=plan.job, kind=frame["type"], why=str(error))
            await line.send({"type": "failed", "why": str(error)})

    async def _do(self, plan: Assignment, line: Line, question: Question) -> None:
        match question:
            case Reserve():
                await self._reserve(plan, line, question)
            case Look():
                await self._look(plan, line, question.known)
            case Seal():
                await _patiently(line, self._seal(plan, line, question))
            case Abandon():
                await self._committer.abandon(plan.pod_uid, Generation(plan.incarnation, question.step))
                await line.send({"type": "noted"})
            case Inexact():
                self._alarms.inexact(plan, line.rank, question.what)
                await line.send({"type": "noted"})
            case Restore():
                await self._restore(plan, line, question)
            case WantShard():
                await self._shard(line, plan, question.shard)
            case Restored():
                await self._restored(plan, line)

    # Saving.

    async def _reserve(self, plan: Assignment, line: Line, wanted: Reserve) -> None:
        job_memory = self._memory_manager.open(plan.job_uid)
        owners = [str(rank) for one in self._plans(plan) for rank in one.ranks]
        limit = plan.memory_limit
        kind = SEGMENTS if wanted.segments else BASES
        count = wanted.segments or SLOTS + bool(plan.memory and plan.memory.store)
        work = job_memory.reserve(str(line.rank), count, wanted.size, owners, limit, kind)
        try:
            slots: list[Path] = await _patiently(line, work)
        except (Refused, NoRoom) as error:
            if kind == BASES:
                raise
            # Full saves go on without: it is no trouble of the job's.
            await line.send(_shortage(error))
            return
        if kind == BASES:
            self._alarms.room(plan, line.rank, SAVING)
        answer = {"type": "slots", "names": [path.name for path in slots]}
        await line.send({**answer, "copies": plan.memory.copies if plan.memory else 0}, slots, write=True)

    async def _look(self, plan: Assignment, line: Line, known: str) -> None:
        owner, job_memory = str(line.rank), self._memory_manager.open(plan.job_uid)

        def stand(store: ShardStore) -> str:
            free, given_up = store.writable(owner), store.given_up
            held = store.sealed([owner], plan.incarnation)
            return json.dumps(
                {
                    "marks": {tier.value: list(mark) for tier, mark in sorted(store.marks.items())},
                    "slot": free[0] if free else "",
                    "segments": store.writable(owner, SEGMENTS),
                    "holds": sorted(
                        list(generation)
                        for generation, ids in held.items()
                        if not given_up.intersection(ids.values())
                    ),
                    "uploads": sorted(
                        list(generation)
                        for generation, record in store.records.items()
                        if record.remote and generation.incarnation == plan.incarnation
                    ),
                    "interval": plan.interval_seconds,
                }
            )

        def news(store: ShardStore) -> str | None:
            return None if (found := stand(store)) == known else found

        found = await job_memory.until(news, LOOK_SECONDS) or known
        await line.send({"type": "stand", "stand": found})

    async def _seal(self, plan: Assignment, line: Line, seal: Seal) -> None:
        owner, job_memory = str(line.rank), self._memory_manager.open(plan.job_uid)
        generation = Generation(plan.incarnation, seal.step)
        if seal.step == START_STEP:
            raise ValueError(f"a save of step {START_STEP} has nothing behind it")

        def there(store: ShardStore) -> bool:
            """Then it is an answer that got lost."""
            return generation in store.sealed([owner], plan.incarnation)

        seconds = 0.0
        if not await job_memory.inspect(there):
            metadata = ShardMetadata(seal.world, seal.torch, seal.plan, seal.last)
            written = WrittenBuffer(seal.slot, owner, seal.length, metadata)
            extends = Generation(*seal.extends) if seal.extends else None
            done = await job_memory.sealer.seal(written, generation, extends)
            seconds = done.seconds
        await self._committer.sealed(plan.pod_uid)
        await line.send({"type": "sealed", "seconds": seconds})

    # Restoring.

    async def _restore(self, plan: Assignment, line: Line, question: Restore) -> None:
        reading = await _patiently(line, self._reading(plan, question))
        if reading.reply.outcome == reading.reply.LOST:
            self._alarms.lost(plan, reading.reply.message or "nothing is whole")
        found: Record | None = None
        if (chosen := reading.chosen) is not None:
            job_memory = self._memory_manager.open(plan.job_uid)
            found = await job_memory.inspect(lambda store: store.records.get(chosen))
        await line.send(
            {
                "type": "restore",
                "generation": list(chosen) if chosen else None,
                "world": found.world if found else 0,
                "torch": found.torch if found else "",
                "shards": reading.shards,
                "message": reading.reply.message,
                "lost": reading.reply.outcome == reading.reply.LOST,
            }
        )

    async def _reading(self, plan: Assignment, question: Restore) -> Reading:
        """One for all ranks of the pod."""
        uid = plan.pod_uid
        async with self._turns.setdefault((uid, plan.incarnation), asyncio.Lock()):
            known = self._readings.get(uid)
            if (
                known is None
                or known.plan.incarnation != plan.incarnation
                or known.attempt < question.attempt
            ):
                known = await self._asked(plan, question, known)
                # One of a pod that has left meanwhile would be ended by nobody.
                if any(one.uid == uid for one in self._pods()):
                    self._readings[uid] = known
            return known

    async def _asked(self, plan: Assignment, question: Restore, before: Reading | None) -> Reading:
        """`before`: the attempt that came to nothing, if this is not the first."""
        again = before is not None and before.plan.incarnation == plan.incarnation
        began = before.began if before is not None and again else time.monotonic()
        try:
            reading = await self._restores.resume(
                plan, question.attempt, question.broken, bases=question.bases
            )
        except Failed:
            metrics.RESTORES.labels("failed").inc()
            raise
        outcome = _OUTCOMES.get(reading.reply.outcome)
        if outcome and not again:
            metrics.RESTORES.labels(outcome).inc()
        reading.began = began
        return reading

    async def _shard(self, line: Line, plan: Assignment, shard: str) -> None:
        reading = self._readings.get(plan.pod_uid)
        if reading is None or reading.plan.incarnation != plan.incarnation:
            raise Failed("what is restored is not known any more")
        job_memory = self._memory_manager.open(plan.job_uid)
        paths, lengths = [], []
        for key, places in reading.links(shard):
            broken = await _patiently(line, self._restores.fetch(reading, key, places))

            def find(store: ShardStore, key: str = key) -> tuple[Path, int] | None:
                manifest = store.manifest(key)
                return (store.path(key), manifest.length) if manifest is not None else None

            found = await job_memory.inspect(find)
            if found is None:
                await line.send({"type": "broken", "broken": [list(one) for one in broken]})
                return
            paths.append(found[0])
            lengths.append(found[1])
        if not paths:
            raise ValueError(f"there is no shard {shard[:40]!r}")
        await line.send({"type": "shard", "lengths": lengths}, paths)

    async def _restored(self, plan: Assignment, line: Line) -> None:
        reading = self._readings.get(plan.pod_uid)
        if reading is not None and reading.plan.incarnation == plan.incarnation:
            reading.left.discard(line.rank)
            if not reading.left:
                del self._readings[plan.pod_uid]
                if reading.chosen is not None:
                    metrics.RESTORE_SECONDS.observe(time.monotonic() - reading.began)
                await self._done(reading)
        self._alarms.room(plan, line.rank, READING)
        await line.send({"type": "done"})

    async def _done(self, reading: Reading) -> None:
        """All ranks of a pod have read everything: copies are made of what the next losses may take."""
        plan = reading.plan
        job_memory: JobMemory = self._memory_manager.open(plan.job_uid)
        shards = self._restored_shards.setdefault(plan.job_uid, _RestoredShards())
        shards.kept |= await self._committer.adopt(plan.pod_uid, reading)
        shards.fetched |= reading.fetched
        others = [one.plan for one in self._readings.values() if one.plan.job_uid == plan.job_uid]
        # What an earlier incarnation has not read to its end is read by nobody any more.
        if not any(one.incarnation >= plan.incarnation for one in others):
            await job_memory.unpin(shards.fetched - shards.kept)
            self._restored_shards.pop(plan.job_uid, None)

    def _plans(self, plan: Assignment) -> list[Assignment]:
        """Return the assignments of the job's pods on this node, in this incarnation."""
        plans = [one.assignment for one in self._pods() if one.assignment]
        return [one for one in plans if (one.job_uid, one.incarnation) == (plan.job_uid, plan.incarnation)]


async def _patiently(line: Line, work: Coroutine[Any, Any, T]) -> T:
    """Tells the rank meanwhile that it is being worked on."""
    task = asyncio.create_task(work)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=WAIT_SECONDS)
            if done:
                return task.result()
            await line.send({"type": "wait"})
    finally:
        if not task.done():
            task.cancel()


def _shortage(error: Refused | NoRoom) -> dict[str, Any]:
    missing = error.missing if isinstance(error, NoRoom) else error.refusal.missing
    return {"type": "refused", "missing": missing, "why": str(error)}
