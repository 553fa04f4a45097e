"""The ledger of committed generations in a job's memory. The agent of slot 0 writes it."""

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
"""Number of store intervals after which an upload counts as overdue. While a generation is uploaded, no
other generation is chosen for the store. After this time another one is chosen, even if the upload has
not ended.
"""

log = structlog.get_logger()


@dataclass(slots=True)
class _JobCommits:
    """The state of one job's commits in its store, as this agent knows it."""

    chosen: tuple[Generation, float] | None = None
    """The newest generation that was chosen for the store, and the time of the choice in monotonic seconds.
    None before the first choice.
    """
    collected_for: Generation | None = None
    """The last generation before whose commit garbage was collected because the store was full. None before
    the first such collection.
    """


class MemoryLedger:
    """Writes the record of each committed generation to the memory of its job. Every slot that voted for
    the generation also gets the record with the outcome, and keeps it.
    """

    def __init__(self, memory_manager: MemoryManager, remotes: Remotes, troubles: TroubleReporter) -> None:
        self._memory_manager = memory_manager
        self._remotes = remotes
        self._troubles = troubles
        self._jobs: dict[str, _JobCommits] = {}
        """State of the commits, by job uid."""
        self._collecting: set[asyncio.Task[None]] = set()

    async def committed_record(self, job_uid: str, tier: Tier, generation: Generation) -> Record | None:
        """Return the record of a generation that is already committed at the tier; None if it is not."""
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
        """Commit a generation at a tier. At the local tier, write its record. At the peer or remote tier,
        advance the watermark of this tier. Return True if the generation is committed.

        Return False if the votes contradict one another, the generation has no local record, the store
        refuses it, or a later incarnation has started. Raises OSError if the memory has no space for the
        record.
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
            # The record may come from an earlier agent, which ended after it wrote the record and before it
            # advanced the watermark. That agent may have made another choice for the store, so the choice in
            # the record counts.
            stands = await self.committed_record(plan.job_uid, tier, generation)
            if stands is not None and stands.remote:
                job = self._jobs.setdefault(plan.job_uid, _JobCommits())
                job.chosen = (stands.generation, time.monotonic())
        return written

    def drop_job(self, job_uid: str) -> None:
        """Drop the state of a job that has ended."""
        self._jobs.pop(job_uid, None)

    async def _goes_remote(self, plan: Assignment, generation: Generation, last: bool) -> bool:
        """Return True if a generation must go to the job's store. Return False if the job has no store, or
        if its store cannot commit.

        The job's last generation always goes to the store, because the node's memory is released
        afterwards. For another generation the choice depends on the generation that was chosen before it.
        If that one is in the store, the store interval must have passed since its choice. If not, it must
        be overdue (OVERDUE).
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
        # If the generation that was chosen before belongs to an earlier incarnation, its upload was
        # cancelled. So it does not delay this generation.
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
        # The store is full, so it accepts no commit. Collect garbage now, although this otherwise follows a
        # commit. Make no entry for a job without memory, because `drop_job` has run already and would not
        # remove the entry.
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
    """Return the generation under whose name the record is stored. It is `generation` itself, unless this
    is the state from which its incarnation started. The record of that state has the name of the
    generation that was restored.
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
