"""The records of generations in memory. The agent of slot 0 writes them."""

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
"""Multiple of the store interval after which a generation that has not reached the store is replaced by the
next.
"""

log = structlog.get_logger()


@dataclass(slots=True)
class _JobCommits:
    """This agent's knowledge of one job's commits in its store."""

    chosen: tuple[Generation, float] | None = None
    """The newest generation that was chosen for the store, and the time of that choice in monotonic
    seconds.
    """
    collected_for: Generation | None = None
    """The last generation for whose record garbage was collected in the store."""


class MemoryLedger:
    """The ledger in the job's memory. Slots that vote get the record with the outcome and keep it too."""

    def __init__(self, memory_manager: MemoryManager, remotes: Remotes, troubles: TroubleReporter) -> None:
        self._memory_manager = memory_manager
        self._remotes = remotes
        self._troubles = troubles
        self._jobs: dict[str, _JobCommits] = {}
        """Commits by job uid."""
        self._collecting: set[asyncio.Task[None]] = set()

    async def committed_record(self, job_uid: str, tier: Tier, generation: Generation) -> Record | None:
        """Return the record of a generation that is committed at the tier already; None otherwise."""
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
        """Write the record of a generation, or advance its tier. Return False if the slots' votes
        contradict one another, or if the generation has no local record yet. OSError.
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
            # The record may be that of an earlier agent, which ended before it advanced the watermark.
            stands = await self.committed_record(plan.job_uid, tier, generation)
            if stands is not None and stands.remote:
                job = self._jobs.setdefault(plan.job_uid, _JobCommits())
                job.chosen = (stands.generation, time.monotonic())
        return written

    def drop_job(self, job_uid: str) -> None:
        """Drop the state of a job that is over."""
        self._jobs.pop(job_uid, None)

    async def _goes_remote(self, plan: Assignment, generation: Generation, last: bool) -> bool:
        """Return True if a generation goes to the job's store: it is due, and the one before has arrived or
        is overdue. The job's last generation always goes, because the memory is released after it.
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
        # A generation that an earlier incarnation chose is not being uploaded any more.
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
                "commit in the store failed", job=plan.job, why=str(error), **record.generation._asdict()
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
            collected_for = self._jobs.get(plan.job_uid, _JobCommits()).collected_for
            if not error.full or collected_for == record.generation:
                raise
        # Garbage is otherwise collected after a commit, and a full store has no space for one. A job without
        # memory was dropped already: make no entry, since nothing would drop it again.
        if self._memory_manager.get(plan.job_uid) is not None:
            self._jobs.setdefault(plan.job_uid, _JobCommits()).collected_for = record.generation
        await self._remotes.collect_garbage(plan)
        return await self._remotes.commit(plan, record)

    async def _collect_garbage(self, plan: Assignment) -> None:
        try:
            await self._remotes.collect_garbage(plan)
        except StoreError as error:
            log.warning("garbage collection in the store failed", job=plan.job, why=str(error))


def recorded_generation(store: ShardStore, generation: Generation) -> Generation:
    """Return the name under which a generation is recorded: an incarnation's start state has the name of
    its origin.
    """
    branch = store.branches.get(generation.incarnation)
    started = branch.parent if branch and generation.step == START_STEP else None
    return started or generation


def _record(
    plan: Assignment, generation: Generation, parent: Generation | None, votes: Mapping[int, PrepareVote]
) -> Record | None:
    metadata = {one.metadata for one in votes.values()}
    shards = {shard: key for one in votes.values() for shard, key in one.shards.items()}
    if len(metadata) != 1 or len(shards) != plan.world_size:
        log.error(
            "votes of the slots contradict one another",
            job=plan.job,
            facts=sorted(metadata),
            shards=len(shards),
        )
        return None
    world, torch, *_ = next(iter(metadata))
    return Record(generation, parent, shards, world, torch, time.time())
