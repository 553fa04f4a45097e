"""Where the calls of a job's slots are held while the commit is decided (commit.py decides)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import structlog

from convoy_agents.pods.assignment import Assignment
from convoy_agents.pods.state import PodState
from convoy_agents.tiercheck.vault import Facts
from convoy_controllers.checkpoint import commit
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Record

MAX_HELD = 4096
"""Calls held for one job and tier."""

log = structlog.get_logger()


class Said(NamedTuple):
    """What a slot says of a generation that its ranks have sealed in memory."""

    shards: Mapping[str, str]
    """Ids of the manifests, by shard."""
    facts: Facts


class Answer(NamedTuple):
    """How the commit ended."""

    verdict: Verdict
    seen: int
    """The latest incarnation the coordinator has heard of."""
    record: Record | None = None
    """Of a generation that is committed."""


class Ledger(Protocol):
    """Where generations in memory are written down, at the agent of slot 0."""

    async def stands(self, job_uid: str, tier: Tier, generation: Generation) -> Record | None:
        """The record of a generation that stands at the tier already."""
        ...

    async def write(
        self, plan: Assignment, tier: Tier, generation: Generation, said: Mapping[int, Said]
    ) -> bool:
        """Every slot has prepared: writes it down. False when that cannot be."""
        ...


@dataclass(slots=True)
class _Line:
    """One tier of a job."""

    state: commit.CommitState = field(default_factory=commit.CommitState)
    held: dict[Generation, dict[asyncio.Future[Verdict], int]] = field(default_factory=dict)
    """The slot of each held call, by generation."""
    said: dict[Generation, dict[int, Said]] = field(default_factory=dict)
    """By slot."""


@dataclass(slots=True)
class _Job:
    pod_uid: str
    assignment: Assignment
    lines: dict[Tier, _Line] = field(default_factory=lambda: {tier: _Line() for tier in Tier})


class CommitDesk:
    """The jobs that keep states in memory and whose slot 0 is a pod of this node."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._jobs: dict[str, _Job] = {}
        self._writing: set[asyncio.Task[None]] = set()

    def assignment(self, job_uid: str) -> Assignment | None:
        """The plan of a job this agent coordinates."""
        job = self._jobs.get(job_uid)
        return job.assignment if job else None

    def seen(self, job_uid: str) -> int:
        """The latest incarnation heard of; 0 for a job of others."""
        job = self._jobs.get(job_uid)
        return max(line.state.seen for line in job.lines.values()) if job else 0

    def advanced(self, pod: PodState) -> None:
        """Takes note of a pod's assignment and of the latest incarnation it has seen."""
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
            return  # an earlier pod of slot 0 that is still leaving
        job.pod_uid, job.assignment = pod.uid, plan
        for tier in Tier:
            self._apply(job, tier, commit.Planned(plan.incarnation, len(plan.members)))
            self._apply(job, tier, commit.Seen(pod.seen))

    def forget(self, pod_uid: str) -> None:
        """The pod left the node: it coordinates nothing any more."""
        for uid in [key for key, job in self._jobs.items() if job.pod_uid == pod_uid]:
            self._drop(uid)

    async def prepare(
        self, job_uid: str, slot: int, tier: Tier, generation: Generation, said: Said | None = None
    ) -> Answer:
        """Holds until the generation is decided at the tier. EXPIRED: try again.

        A cancelled call counts as withdrawn. `said` belongs to the local tier.
        """
        job = self._jobs.get(job_uid)
        if job is None or slot >= len(job.assignment.members):
            return Answer(Verdict.EXPIRED, 0)
        if (stands := await self._ledger.stands(job_uid, tier, generation)) is not None:
            return Answer(Verdict.COMMITTED, self.seen(job_uid), stands)
        line = job.lines[tier]
        if self._jobs.get(job_uid) is not job or sum(map(len, line.held.values())) >= MAX_HELD:
            return Answer(Verdict.EXPIRED, 0)
        verdict = await self._hold(job, tier, slot, generation, said)
        committed = verdict is Verdict.COMMITTED
        record = await self._ledger.stands(job_uid, tier, generation) if committed else None
        return Answer(verdict, line.state.seen, record)

    def abandon(self, job_uid: str, generation: Generation) -> Answer:
        """A slot will never prepare it at the local tier. EXPIRED: try again."""
        job = self._jobs.get(job_uid)
        if job is None or job.assignment.incarnation < generation.incarnation:
            return Answer(Verdict.EXPIRED, 0)
        self._apply(job, Tier.LOCAL, commit.Abandon(generation))
        return Answer(Verdict.STALE, self.seen(job_uid))

    async def _hold(
        self, job: _Job, tier: Tier, slot: int, generation: Generation, said: Said | None
    ) -> Verdict:
        line, loop = job.lines[tier], asyncio.get_running_loop()
        answer: asyncio.Future[Verdict] = loop.create_future()
        line.held.setdefault(generation, {})[answer] = slot
        if said is not None:
            line.said.setdefault(generation, {})[slot] = said
        # Bound to this call: whoever holds one is answered even if nothing else ever happens.
        timer = loop.call_later(commit.DEADLINE_SECONDS, self._apply, job, tier, commit.Tick())
        try:
            # What is overdue must not stand in this one's way.
            self._apply(job, tier, commit.Tick())
            self._apply(job, tier, commit.Prepare(slot, generation))
            async with asyncio.timeout(2 * commit.DEADLINE_SECONDS):
                return await answer
        except TimeoutError:
            return Verdict.EXPIRED
        finally:
            timer.cancel()
            calls = line.held.get(generation, {})
            calls.pop(answer, None)
            if not calls:
                line.held.pop(generation, None)
                line.said.pop(generation, None)
            if slot not in calls.values():
                self._apply(job, tier, commit.Withdraw(slot, generation))

    def _apply(self, job: _Job, tier: Tier, event: commit.Event) -> None:
        line = job.lines[tier]
        result = commit.step(line.state, event, asyncio.get_running_loop().time())
        line.state = result.state
        for generation, verdict in result.verdicts:
            log.info(
                "generation decided",
                job=job.assignment.job,
                tier=tier.value,
                verdict=verdict.value,
                **generation._asdict(),
            )
            for answer in line.held.get(generation, {}):
                if not answer.done():
                    answer.set_result(verdict)
        if result.write:
            self._write(job, tier, result.write)

    def _write(self, job: _Job, tier: Tier, generation: Generation) -> None:
        said = dict(job.lines[tier].said.get(generation, {}))
        task = asyncio.create_task(self._write_down(job, job.assignment, tier, generation, said))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write_down(
        self, job: _Job, plan: Assignment, tier: Tier, generation: Generation, said: Mapping[int, Said]
    ) -> None:
        try:
            written = await self._ledger.write(plan, tier, generation, said)
        except OSError as error:
            log.error("generation not written down", job=plan.job, why=str(error), **generation._asdict())
            written = False
        self._apply(job, tier, commit.Recorded(generation) if written else commit.Unwritten(generation))

    def _drop(self, job_uid: str) -> None:
        job = self._jobs.pop(job_uid)
        for line in job.lines.values():
            for calls in line.held.values():
                for answer in calls:
                    if not answer.done():
                        answer.set_result(Verdict.EXPIRED)
