"""The coordinator of a job's commits. It keeps each slot's Prepare call open until `checkpoint/commit.py`
decides whether the generation is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import structlog

from convoy_agents.pods.assignment import Assignment
from convoy_agents.pods.state import PodState
from convoy_agents.tiercheck.shard_record import ShardMetadata
from convoy_controllers.checkpoint import commit
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Record

MAX_HELD = 4096
"""Maximum number of open Prepare calls for one job and tier."""

log = structlog.get_logger()


class PrepareVote(NamedTuple):
    """A slot's vote for a generation whose shards the slot's ranks have sealed in memory."""

    shards: Mapping[str, str]
    """The id of each shard's manifest, by the name of the shard."""
    metadata: ShardMetadata


class CommitOutcome(NamedTuple):
    """The coordinator's decision about one generation at one tier."""

    verdict: Verdict
    seen: int
    """The latest incarnation of the job that the coordinator knows."""
    record: Record | None = None
    """The generation's record if the verdict is COMMITTED and the record exists."""


class Ledger(Protocol):
    """The generation records of the jobs whose slot 0 is on this node."""

    async def committed_record(self, job_uid: str, tier: Tier, generation: Generation) -> Record | None:
        """Return the generation's record if the generation is already committed at the tier, else None."""
        ...

    async def write(
        self, plan: Assignment, tier: Tier, generation: Generation, votes: Mapping[int, PrepareVote]
    ) -> bool:
        """Commit a generation for which every slot has voted. Return False if the commit is impossible.
        Raises OSError if the record cannot be written.
        """
        ...


@dataclass(slots=True)
class _HeldCommit:
    """The open Prepare calls for one generation at one tier."""

    calls: dict[asyncio.Future[Verdict], int] = field(default_factory=dict)
    """The slot number of each open call."""
    votes: dict[int, PrepareVote] = field(default_factory=dict)
    """The votes by slot number."""


@dataclass(slots=True)
class _TierCommits:
    """The state of a job's commits at one tier."""

    state: commit.CommitState = field(default_factory=commit.CommitState)
    held: dict[Generation, _HeldCommit] = field(default_factory=dict)


@dataclass(slots=True)
class _Job:
    pod_uid: str
    assignment: Assignment
    tiers: dict[Tier, _TierCommits] = field(default_factory=lambda: {tier: _TierCommits() for tier in Tier})


class CommitCoordinator:
    """Coordinates the commits of jobs whose slot 0 is a pod of this node. It handles only jobs that keep
    checkpoints in memory.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._jobs: dict[str, _Job] = {}
        self._writing: set[asyncio.Task[None]] = set()

    def assignment(self, job_uid: str) -> Assignment | None:
        """Return the assignment of slot 0 of a job; None if this agent does not coordinate the job."""
        job = self._jobs.get(job_uid)
        return job.assignment if job else None

    def seen(self, job_uid: str) -> int:
        """Return the latest incarnation of a job that this agent has seen; 0 if this agent does not
        coordinate the job.
        """
        job = self._jobs.get(job_uid)
        return max(tier.state.seen for tier in job.tiers.values()) if job else 0

    def update(self, pod: PodState) -> None:
        """Apply a pod's assignment and the latest incarnation that the pod has seen."""
        plan = pod.assignment
        for uid in [key for key, job in self._jobs.items() if job.pod_uid == pod.uid]:
            if not plan or plan.slot or plan.job_uid != uid or plan.memory is None:
                self._drop(uid)
        if not plan or plan.slot or plan.memory is None:
            return
        job = self._jobs.get(plan.job_uid)
        if job is None:
            job = self._jobs[plan.job_uid] = _Job(pod.uid, plan)
        elif plan.incarnation < job.assignment.incarnation:
            # This pod belongs to an earlier incarnation and is still terminating. Ignore its outdated
            # assignment.
            return
        job.pod_uid, job.assignment = pod.uid, plan
        for tier in Tier:
            self._apply(job, tier, commit.Planned(plan.incarnation, len(plan.members)))
            self._apply(job, tier, commit.IncarnationSeen(pod.seen))

    def drop_pod(self, pod_uid: str) -> None:
        """Stop coordinating the jobs whose slot 0 was this pod. Call this after the pod has left the node."""
        for uid in [key for key, job in self._jobs.items() if job.pod_uid == pod_uid]:
            self._drop(uid)

    async def prepare(
        self,
        job_uid: str,
        slot: int,
        tier: Tier,
        generation: Generation,
        vote: PrepareVote | None = None,
    ) -> CommitOutcome:
        """Register the slot's vote for the generation at the tier, wait for the decision, and return the
        outcome.

        If the verdict is EXPIRED, the caller should retry. If the caller cancels this call, the slot's vote
        is withdrawn. `vote` is used at the local tier only.
        """
        job = self._jobs.get(job_uid)
        if job is None or slot >= len(job.assignment.members):
            return CommitOutcome(Verdict.EXPIRED, 0)
        if (stands := await self._ledger.committed_record(job_uid, tier, generation)) is not None:
            return CommitOutcome(Verdict.COMMITTED, self.seen(job_uid), stands)
        commits = job.tiers[tier]
        calls = sum(len(held.calls) for held in commits.held.values())
        if self._jobs.get(job_uid) is not job or calls >= MAX_HELD:
            return CommitOutcome(Verdict.EXPIRED, 0)
        verdict = await self._hold(job, tier, slot, generation, vote)
        committed = verdict is Verdict.COMMITTED
        record = await self._ledger.committed_record(job_uid, tier, generation) if committed else None
        return CommitOutcome(verdict, commits.state.seen, record)

    def abandon(self, job_uid: str, generation: Generation) -> CommitOutcome:
        """Record that a slot will never prepare a generation at the local tier. If the verdict is EXPIRED,
        the caller should retry.
        """
        job = self._jobs.get(job_uid)
        if job is None or job.assignment.incarnation < generation.incarnation:
            return CommitOutcome(Verdict.EXPIRED, 0)
        self._apply(job, Tier.LOCAL, commit.Abandon(generation))
        return CommitOutcome(Verdict.STALE, self.seen(job_uid))

    async def _hold(
        self, job: _Job, tier: Tier, slot: int, generation: Generation, vote: PrepareVote | None
    ) -> Verdict:
        commits, loop = job.tiers[tier], asyncio.get_running_loop()
        verdict: asyncio.Future[Verdict] = loop.create_future()
        held = commits.held.setdefault(generation, _HeldCommit())
        held.calls[verdict] = slot
        if vote is not None:
            held.votes[slot] = vote
        # The event Tick ends the calls that are older than DEADLINE_SECONDS. This timer applies Tick even if
        # no other event of the job occurs.
        timer = loop.call_later(commit.DEADLINE_SECONDS, self._apply, job, tier, commit.Tick())
        try:
            # Expire overdue generations first, so that an overdue generation does not block the new one.
            self._apply(job, tier, commit.Tick())
            self._apply(job, tier, commit.Prepare(slot, generation))
            async with asyncio.timeout(2 * commit.DEADLINE_SECONDS):
                return await verdict
        except TimeoutError:
            return Verdict.EXPIRED
        finally:
            timer.cancel()
            held.calls.pop(verdict, None)
            if not held.calls:
                commits.held.pop(generation, None)
            if slot not in held.calls.values():
                self._apply(job, tier, commit.Withdraw(slot, generation))

    def _apply(self, job: _Job, tier: Tier, event: commit.Event) -> None:
        commits = job.tiers[tier]
        result = commit.step(commits.state, event, asyncio.get_running_loop().time())
        commits.state = result.state
        for generation, verdict in result.verdicts:
            log.info(
                "generation decided",
                job=job.assignment.job,
                tier=tier.value,
                verdict=verdict.value,
                **generation._asdict(),
            )
            if (held := commits.held.get(generation)) is not None:
                _end(held, verdict)
        if result.write:
            self._write(job, tier, result.write)

    def _write(self, job: _Job, tier: Tier, generation: Generation) -> None:
        held = job.tiers[tier].held.get(generation)
        votes = dict(held.votes) if held is not None else {}
        task = asyncio.create_task(self._write_down(job, job.assignment, tier, generation, votes))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write_down(
        self,
        job: _Job,
        plan: Assignment,
        tier: Tier,
        generation: Generation,
        votes: Mapping[int, PrepareVote],
    ) -> None:
        try:
            written = await self._ledger.write(plan, tier, generation, votes)
        except OSError as error:
            log.error(
                "writing the generation record failed", job=plan.job, why=str(error), **generation._asdict()
            )
            written = False
        self._apply(job, tier, commit.Recorded(generation) if written else commit.Unwritten(generation))

    def _drop(self, job_uid: str) -> None:
        job = self._jobs.pop(job_uid)
        for commits in job.tiers.values():
            for held in commits.held.values():
                _end(held, Verdict.EXPIRED)


def _end(held: _HeldCommit, verdict: Verdict) -> None:
    """Set the verdict of all open calls that have none."""
    for call in held.calls:
        if not call.done():
            call.set_result(verdict)
