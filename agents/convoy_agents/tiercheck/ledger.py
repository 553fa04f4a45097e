"""The records of generations in memory, as the agent of slot 0 writes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from convoy_agents.commit_coordinator import PrepareVote
from convoy_agents.pods.assignment import Assignment
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.remote import Remotes
from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tiercheck.trouble_reporter import TroubleReporter
from convoy_controllers.checkpoint.generation import START_STEP, Generation, Tier
from convoy_controllers.checkpoint.records import Record

OVERDUE = 4
"""Times the interval after which a generation that has not got to the store gives way to the next."""

log = structlog.get_logger()


@dataclass(slots=True)
class _JobCommits:
    """One job's commits in its store, as far as this agent knows them."""

    chosen: tuple[Generation, float] | None = None
    """The newest generation that is to go to the store, and when it was chosen (monotonic seconds)."""
    made_room: Generation | None = None
    """The last generation for whose record what is obsolete was deleted."""


class MemoryLedger:
    """Beside the shards, in the same memory: the slots that have asked take the record along."""

    def __init__(self, memory_manager: MemoryManager, remotes: Remotes, troubles: TroubleReporter) -> None:
        self._memory_manager = memory_manager
        self._remotes = remotes
        self._troubles = troubles
        self._jobs: dict[str, _JobCommits] = {}
        """Commits by job uid."""
        self._collecting: set[asyncio.Task[None]] = set()

    async def stands(self, job_uid: str, tier: Tier, generation: Generation) -> Record | None:
        """The record of a generation that stands at the tier already."""
        job_memory = self._memory_manager.get(job_uid)
        if job_memory is None:
            return None

        def find(store: ShardStore) -> Record | None:
            record = store.records.get(recorded_generation(store, generation))
            mark = store.marks.get(tier)
            return record if record and mark and mark >= record.generation else None

        return await job_memory.inspect(find)

    async def write(
        self, plan: Assignment, tier: Tier, generation: Generation, votes: Mapping[int, PrepareVote]
    ) -> bool:
        """Writes a generation down, or that it has its copies. OSError.

        False when its slots contradict one another, or it stands nowhere yet.
        """
        job_memory = self._memory_manager.open(plan.job_uid)
        if tier is Tier.LOCAL:
            parent = await job_memory.inspect(lambda store: store.marks.get(Tier.LOCAL))
            record = _record(plan, generation, parent, votes)
            last = any(one.metadata.last for one in votes.values())
            if record is not None and await self._goes_remote(plan, generation, last):
                record = replace(record, remote=True)
        else:
            record = await job_memory.inspect(
                lambda store: store.records.get(recorded_generation(store, generation))
            )
        if record is None:
            return False
        if tier is Tier.REMOTE and not await self._store(plan, record):
            return False
        try:
            written = await job_memory.record_commit(record, plan.incarnation, tier)
        except OSError as error:
            self._troubles.record_not_written(plan, generation, error)
            raise
        self._troubles.record_written(plan)
        if written and tier is Tier.LOCAL:
            # What stands is the record that an agent has left which ended before the watermark.
            stands = await self.stands(plan.job_uid, tier, generation)
            if stands is not None and stands.remote:
                job = self._jobs.setdefault(plan.job_uid, _JobCommits())
                job.chosen = (stands.generation, time.monotonic())
        return written

    def drop_job(self, job_uid: str) -> None:
        """Drop what is known of a job that is over."""
        self._jobs.pop(job_uid, None)

    async def _goes_remote(self, plan: Assignment, generation: Generation, last: bool) -> bool:
        """Return whether a generation goes to the job's store. It does once it is due and the one before has
        arrived or used up its time. The job's last generation always goes: its memory is given back.
        """
        use = plan.memory.store if plan.memory else None
        if use is None:
            return False
        if not self._remotes.can_commit(plan):
            return False
        if last:
            return True
        now = time.monotonic()
        before = self._jobs.get(plan.job_uid, _JobCommits()).chosen
        # What an incarnation that is over has chosen is on its way no more.
        if before is not None and before[0].incarnation == generation.incarnation:
            job_memory = self._memory_manager.open(plan.job_uid)
            mark = await job_memory.inspect(lambda store: store.marks.get(Tier.REMOTE))
            there = mark is not None and mark >= before[0]
            if now - before[1] < use.every_seconds * (1 if there else OVERDUE):
                return False
        return True

    async def _store(self, plan: Assignment, record: Record) -> bool:
        try:
            if not await self._commit(plan, record):
                return False
        except StoreError as error:
            log.warning(
                "not committed in the store", job=plan.job, why=str(error), **record.generation._asdict()
            )
            self._troubles.not_stored(plan, record.generation, error)
            return False
        task = asyncio.create_task(self._collect_garbage(plan))
        self._collecting.add(task)
        task.add_done_callback(self._collecting.discard)
        return True

    async def _commit(self, plan: Assignment, record: Record) -> bool:
        try:
            return await self._remotes.commit(plan, record)
        except StoreError as error:
            made_room = self._jobs.get(plan.job_uid, _JobCommits()).made_room
            if not error.full or made_room == record.generation:
                raise
        # What follows a commit otherwise, and without room there is none.
        # Without memory `drop_job` has been here, and does not come again.
        if self._memory_manager.get(plan.job_uid) is not None:
            self._jobs.setdefault(plan.job_uid, _JobCommits()).made_room = record.generation
        await self._remotes.collect_garbage(plan)
        return await self._remotes.commit(plan, record)

    async def _collect_garbage(self, plan: Assignment) -> None:
        try:
            await self._remotes.collect_garbage(plan)
        except StoreError as error:
            log.warning("store not swept", job=plan.job, why=str(error))


def recorded_generation(store: ShardStore, generation: Generation) -> Generation:
    """Under which name a generation is written down: what an incarnation started with has an earlier one's."""
    branch = store.branches.get(generation.incarnation)
    started = branch.parent if branch and generation.step == START_STEP else None
    return started or generation


def _record(
    plan: Assignment, generation: Generation, parent: Generation | None, votes: Mapping[int, PrepareVote]
) -> Record | None:
    metadata = {one.metadata for one in votes.values()}
    shards = {shard: key for one in votes.values() for shard, key in one.shards.items()}
    if len(metadata) != 1 or len(shards) != plan.world_size:
        log.error("slots contradict one another", job=plan.job, facts=sorted(metadata), shards=len(shards))
        return None
    world, torch, *_ = next(iter(metadata))
    return Record(generation, parent, shards, world, torch, time.time())
