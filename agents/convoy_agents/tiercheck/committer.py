"""Commits the generations of this node's pods. A generation is committed at the local tier when all its
shards are sealed, and later at the peer tier when their copies exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import structlog

from convoy_agents.backoff import Backoff
from convoy_agents.commit_coordinator import CommitOutcome, PrepareVote
from convoy_agents.pods.assignment import Assignment
from convoy_agents.tiercheck.abandoned_generations import AbandonedGenerations
from convoy_agents.tiercheck.copying import ShardCopier, pod_shards, restored_shards, with_extended
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.peer_transfer import PeerTransfer
from convoy_agents.tiercheck.pod_restore import PodRestore
from convoy_agents.tiercheck.remote import Remotes
from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_agents.tiercheck.trouble_reporter import TroubleReporter
from convoy_agents.tiercheck.uploading import Uploads, unfinished_upload
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import START_STEP, Generation, Tier

LOCAL_ATTEMPTS = 2
"""Maximum number of requests to commit a generation at the local tier. Each request may take as long as the
commit client's COMMIT_SECONDS.
"""
PARTIAL_SECONDS = 150.0
"""Seconds within which all ranks of a pod must seal a generation, from the time at which the first rank has
sealed it. After this time the generation is given up.
"""

log = structlog.get_logger()


class CommitRequests(Protocol):
    """The client of the agent of slot 0, which coordinates the commits of a job."""

    async def request_commit(
        self, plan: Assignment, tier: Tier, generation: Generation, vote: PrepareVote | None = None
    ) -> CommitOutcome:
        """Request the commit of a generation at a tier. Return the outcome."""
        ...

    async def abandon(self, plan: Assignment, generation: Generation) -> None:
        """Report that this slot will never vote for the generation, because a rank could not save it."""
        ...


class PodPlans(Protocol):
    """The pods of this node and their assignments."""

    def assignment(self, uid: str) -> Assignment | None:
        """Return a pod's assignment; None if the pod has none or is not on this node."""
        ...

    def commit_decided(
        self, uid: str, tier: Tier, generation: Generation, verdict: Verdict, seen: int
    ) -> None:
        """Notify a pod whether its generation is committed at a tier. `seen`: the latest incarnation that
        slot 0's agent knows.
        """
        ...


@dataclass(eq=False, slots=True)
class CommitRound:
    """The commit of one generation of one pod. A pod has at most as many rounds as each rank has buffers."""

    plan: Assignment
    job_memory: JobMemory
    generation: Generation
    notify_peer: bool = True
    """True to notify the pod of the commit at the peer tier; False for a restored generation."""
    commit: asyncio.Task[None] | None = None
    """The task that commits the generation, first at the local tier and then at the peer tier."""
    give_up: asyncio.Task[None] | None = None
    """The task that gives the generation up unless all ranks of the pod seal it within PARTIAL_SECONDS."""


class Committer:
    """Runs the commit rounds of all pods on one node."""

    def __init__(
        self,
        memory_manager: MemoryManager,
        peer_transfer: PeerTransfer,
        remotes: Remotes,
        troubles: TroubleReporter,
        requests: CommitRequests,
        pods: PodPlans,
    ) -> None:
        self._memory_manager = memory_manager
        self._copies = ShardCopier(peer_transfer, troubles, pods.assignment)
        self._uploads = Uploads(remotes, troubles, self._commit_in_store, self._is_current)
        self._troubles = troubles
        self._requests = requests
        self._pods = pods
        self._rounds: dict[tuple[str, Generation], CommitRound] = {}
        """Running rounds, by pod uid and generation."""
        self._abandoned = AbandonedGenerations(requests.abandon)

    async def commit_sealed(self, uid: str) -> None:
        """Start to commit every generation that all ranks of the pod have sealed. Call it after each sealed
        shard.
        """
        if (mine := self._find_pod(uid)) is None:
            return
        plan, job_memory, shards = mine

        def find(store: ShardStore) -> tuple[dict[Generation, PrepareVote], dict[Generation, list[str]]]:
            if store.incarnation != plan.incarnation:
                return {}, {}
            floor, given_up = store.marks.get(Tier.PEER), store.given_up
            whole: dict[Generation, PrepareVote] = {}
            parts: dict[Generation, list[str]] = {}
            for generation, ids in store.sealed_generations(shards, plan.incarnation).items():
                if given_up.intersection(ids.values()) or (floor and generation <= floor):
                    continue
                metadata = {one for key in ids.values() if (one := store.metadata(key)) is not None}
                if ids.keys() == shards and len(metadata) == 1:
                    whole[generation] = PrepareVote(ids, metadata.pop())
                else:
                    parts[generation] = list(ids.values())
            return whole, parts

        whole, parts = await job_memory.inspect(find)
        for generation, vote in whole.items():
            one = CommitRound(plan, job_memory, generation)
            self._start_commit(one, partial(self._commit, vote=vote))
        for generation, keys in parts.items():
            if self._abandoned.holds(uid, generation):
                await job_memory.give_up(keys, plan.incarnation)
            else:
                self._start_give_up_timer(CommitRound(plan, job_memory, generation), shards)

    async def abandon(self, uid: str, generation: Generation) -> None:
        """Abandon a generation that a rank of the pod could not save. Raises ValueError if all ranks of the
        pod have saved it.

        This node drops the shards that other ranks of the pod saved. It notifies the agent of slot 0. Other
        nodes drop their shards when that agent refuses the commit.
        """
        if (mine := self._find_pod(uid)) is None:
            return
        plan, job_memory, shards = mine
        found = await job_memory.inspect(
            lambda store: store.sealed_generations(shards, plan.incarnation).get(generation, {})
        )
        if found.keys() == shards:
            raise ValueError(f"all ranks of the pod have saved {generation.name}")
        log.warning("generation abandoned: a rank could not save it", job=plan.job, **generation._asdict())
        self._abandoned.add(plan, generation)
        await job_memory.give_up(found.values(), plan.incarnation)

    async def resume(self, uid: str) -> None:
        """Continue the commits, the upload and the copies after a restore that an earlier agent started for
        a pod.
        """
        await self.commit_sealed(uid)
        if (mine := self._find_pod(uid)) is None:
            return
        plan, job_memory, _ = mine
        if (found := await job_memory.inspect(lambda store: unfinished_upload(store, plan))) is not None:
            self._uploads.start(plan, job_memory, *found)
        if (keys := await job_memory.inspect(lambda store: restored_shards(store, plan))) is not None:
            self._start_copy_of_restored(plan, job_memory, keys)

    async def copy_restored(self, uid: str, pod_restore: PodRestore) -> set[str]:
        """Start to copy the restored shards of a pod to the pod's hosts, because earlier copies may be
        lost. Return the ids of these shards, which this node must keep until they are copied.
        """
        plan, chosen = pod_restore.plan, pod_restore.chosen
        if chosen is None:
            return set()
        # Send a journal segment before the shard that it extends. A host accepts a shard of an old generation
        # only if a segment on that host extends this shard.
        keys = [
            key
            for shard in pod_shards(plan, pod_restore.shards)
            for key, _ in reversed(pod_restore.chain(shard))
        ]
        self._start_copy_of_restored(plan, self._memory_manager.open(plan.job_uid), keys)
        return set(keys)

    def drop_pod(self, uid: str) -> None:
        """Cancel all rounds of a pod that left the node. Its shards stay until newer shards replace them."""
        self._troubles.drop_pod(uid)
        for (pod_uid, _), one in self._rounds.items():
            if pod_uid == uid:
                _cancel(one)
        self._uploads.drop_pod(uid)
        self._abandoned.drop_pod(uid)

    async def close(self) -> None:
        """Cancel all tasks."""
        tasks = [task for one in self._rounds.values() for task in _cancel(one)]
        await asyncio.gather(*tasks, self._uploads.close(), self._abandoned.close(), return_exceptions=True)

    # Rounds.

    def _find_pod(self, uid: str) -> tuple[Assignment, JobMemory, set[str]] | None:
        """Return a pod's assignment, the memory of its job and the names of its shards. Return None if the
        pod has no assignment or if its job has no memory on this node.
        """
        plan = self._pods.assignment(uid)
        job_memory = self._memory_manager.get(plan.job_uid) if plan and plan.memory else None
        if plan is None or job_memory is None:
            return None
        return plan, job_memory, {str(rank) for rank in plan.ranks}

    def _is_current(self, plan: Assignment) -> bool:
        """Return True if the pod of `plan` is on this node and is still in the incarnation of `plan`."""
        now = self._pods.assignment(plan.pod_uid)
        return now is not None and now.incarnation == plan.incarnation

    def _start_commit(
        self, one: CommitRound, work: Callable[[CommitRound], Coroutine[Any, Any, None]]
    ) -> None:
        """Start the commit task of a round, unless one is running."""
        key = (one.plan.pod_uid, one.generation)
        known = self._rounds.get(key)
        if known is not None:
            if known.commit is not None:
                return
            one.give_up = known.give_up
        self._rounds[key] = one
        one.commit = asyncio.create_task(work(one))
        one.commit.add_done_callback(partial(self._commit_ended, key))

    def _start_give_up_timer(self, one: CommitRound, shards: set[str]) -> None:
        """Start the task that gives a round up after PARTIAL_SECONDS, unless one is running."""
        key = (one.plan.pod_uid, one.generation)
        kept = self._rounds.setdefault(key, one)
        if kept.give_up is None:
            kept.give_up = asyncio.create_task(self._give_up_later(one, shards))
            kept.give_up.add_done_callback(partial(self._giving_up_ended, key))

    def _commit_ended(self, key: tuple[str, Generation], task: asyncio.Task[None]) -> None:
        one = self._rounds[key]
        one.commit = None
        self._remove_ended(key, one)
        if not task.cancelled() and (error := task.exception()):
            log.error("commit failed", pod_uid=key[0], exc_info=error)

    def _giving_up_ended(self, key: tuple[str, Generation], task: asyncio.Task[None]) -> None:
        one = self._rounds[key]
        one.give_up = None
        self._remove_ended(key, one)

    def _remove_ended(self, key: tuple[str, Generation], one: CommitRound) -> None:
        if one.commit is None and one.give_up is None:
            del self._rounds[key]

    async def _give_up_later(self, one: CommitRound, shards: set[str]) -> None:
        """Give a generation up after PARTIAL_SECONDS unless all ranks of the pod have sealed it. Otherwise
        each rank that sealed the unfinished generation would lose the use of one buffer.
        """
        plan, job_memory, generation = one.plan, one.job_memory, one.generation
        await asyncio.sleep(PARTIAL_SECONDS)
        if self._rounds[plan.pod_uid, generation].commit is not None:
            return
        found = await job_memory.inspect(
            lambda store: store.sealed_generations(shards, plan.incarnation).get(generation, {})
        )
        if found.keys() == shards or not found:
            return
        log.warning(
            "generation given up: a rank did not save it in time", job=plan.job, **generation._asdict()
        )
        await job_memory.give_up(found.values(), plan.incarnation)

    # Commits at the tiers.

    async def _commit(self, one: CommitRound, vote: PrepareVote) -> None:
        plan, job_memory = one.plan, one.job_memory
        keys = await job_memory.inspect(lambda store: with_extended(store, vote.shards.values()))
        copying = asyncio.create_task(self._copies.copy(plan, job_memory, keys))
        try:
            outcome, stands = await self._commit_locally(one, vote)
            if not stands:
                copying.cancel()
                # The verdict EXPIRED does not mean that the commit was refused. Other agents may know that
                # the generation is committed, so withdraw the copies only after a refusal.
                refused = outcome.verdict is not Verdict.EXPIRED
                await job_memory.give_up(vote.shards.values(), plan.incarnation, withdraw=refused)
                return
            if outcome.record is not None and outcome.record.remote:
                self._uploads.start(plan, job_memory, one.generation, keys)
            await self._commit_with_peers(one, copying)
        except Damaged as error:
            # This generation is committed, but its damaged shard cannot be copied, nor can any journal
            # segment that extends the shard. So report the verdict STALE, which makes the ranks restart.
            log.error("SHARD DAMAGED BEFORE ITS COPIES WERE MADE", job=plan.job, why=str(error))
            self._pods.commit_decided(
                plan.pod_uid, Tier.LOCAL, one.generation, Verdict.STALE, plan.incarnation + 1
            )
        finally:
            copying.cancel()

    async def _commit_locally(self, one: CommitRound, vote: PrepareVote) -> tuple[CommitOutcome, bool]:
        """Request the commit at the local tier. Return the outcome, and True if the commit succeeded."""
        for _ in range(LOCAL_ATTEMPTS):
            outcome = await self._requests.request_commit(one.plan, Tier.LOCAL, one.generation, vote)
            # The request may expire after slot 0 has written the record, so try again before giving up.
            if outcome.verdict is not Verdict.EXPIRED:
                break
        return outcome, await self._record_outcome(one, Tier.LOCAL, outcome)

    async def _commit_with_peers(self, one: CommitRound, copying: asyncio.Task[bool]) -> None:
        """Wait until the copies exist, then request the commit at the peer tier. Retry until the
        incarnation ends.

        There is no time limit, because a generation that is committed locally cannot be given up. It
        occupies a buffer of every rank until it is committed at the peer tier.
        """
        if not await copying:
            return
        pause = Backoff(first=0.5, cap=10.0)
        while self._is_current(one.plan):
            outcome = await self._requests.request_commit(one.plan, Tier.PEER, one.generation)
            if outcome.verdict is not Verdict.EXPIRED:
                await self._record_outcome(one, Tier.PEER, outcome)
                return
            await asyncio.sleep(pause.next())

    async def _commit_in_store(
        self, plan: Assignment, job_memory: JobMemory, generation: Generation
    ) -> bool | None:
        """Request the commit in the job's store. Return True if the generation is committed in the store,
        False if the commit is refused, None if the request expired.
        """
        outcome = await self._requests.request_commit(plan, Tier.REMOTE, generation)
        if outcome.verdict is Verdict.EXPIRED:
            return None
        return await self._record_outcome(CommitRound(plan, job_memory, generation), Tier.REMOTE, outcome)

    def _start_copy_of_restored(self, plan: Assignment, job_memory: JobMemory, keys: list[str]) -> None:
        # Start a round even if this pod has no shard to copy, because every slot must vote.
        if plan.memory and plan.memory.copies:
            start = Generation(plan.incarnation, START_STEP)
            one = CommitRound(plan, job_memory, start, notify_peer=False)
            self._start_commit(one, partial(self._copy_and_commit, keys=keys))

    async def _copy_and_commit(self, one: CommitRound, keys: list[str]) -> None:
        copying = asyncio.create_task(self._copies.copy(one.plan, one.job_memory, keys))
        try:
            await self._commit_with_peers(one, copying)
        except Damaged as error:
            log.error("restored shards not copied: they are damaged", job=one.plan.job, why=str(error))
        finally:
            copying.cancel()

    async def _record_outcome(self, one: CommitRound, tier: Tier, outcome: CommitOutcome) -> bool:
        """Record a commit's outcome in this node's memory and notify the pod. Return True for a success."""
        plan, generation = one.plan, one.generation
        committed = outcome.verdict is Verdict.COMMITTED
        if committed and outcome.record is not None:
            pause = Backoff(first=0.5, cap=10.0)
            while True:
                try:
                    noted = await one.job_memory.record_commit(outcome.record, plan.incarnation, tier)
                    self._troubles.record_written(plan)
                    break
                except OSError as error:
                    # The node's memory is full. Retry until the incarnation ends.
                    log.error(
                        "commit not recorded in memory; retrying",
                        job=plan.job,
                        why=str(error),
                        **generation._asdict(),
                    )
                    self._troubles.record_not_written(plan, generation, error)
                    if one.job_memory.closed or not self._is_current(plan):
                        return False
                    await asyncio.sleep(pause.next())
            if not noted:
                return False
        # If the job has no copies, only the agents use the peer tier. Do not notify the pod of this commit,
        # because the pod would wrongly conclude that copies exist.
        peer = one.notify_peer and self._copies.wanted(plan)
        if tier is not Tier.PEER or peer:
            self._pods.commit_decided(plan.pod_uid, tier, generation, outcome.verdict, outcome.seen)
        return committed


def _cancel(one: CommitRound) -> list[asyncio.Task[None]]:
    """Cancel the tasks of a round and return them."""
    tasks = [task for task in (one.commit, one.give_up) if task is not None]
    for task in tasks:
        task.cancel()
    return tasks
