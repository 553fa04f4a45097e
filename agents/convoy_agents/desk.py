"""Where the calls of a job's slots are held while the commit is decided (commit.py decides)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from convoy_agents.pods.assignment import Assignment
from convoy_agents.pods.state import PodState
from convoy_controllers.checkpoint import commit
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation

MAX_HELD = 4096
"""Calls held for one job."""

log = structlog.get_logger()


@dataclass(slots=True)
class _Job:
    pod_uid: str
    assignment: Assignment
    state: commit.CommitState = field(default_factory=commit.CommitState)
    held: dict[Generation, dict[asyncio.Future[Verdict], int]] = field(default_factory=dict)
    """The slot of each held call, by generation."""


class CommitDesk:
    """The jobs whose slot 0 is a pod of this node."""

    def __init__(self, ask_record: Callable[[str, Generation], None]) -> None:
        self._ask_record = ask_record
        """(uid of slot 0's pod, generation): rank 0 is to write the record."""
        self._jobs: dict[str, _Job] = {}

    def assignment(self, job_uid: str) -> Assignment | None:
        """The plan of a job this agent coordinates."""
        job = self._jobs.get(job_uid)
        return job.assignment if job else None

    def seen(self, job_uid: str) -> int:
        """The latest incarnation heard of; 0 for a job of others."""
        job = self._jobs.get(job_uid)
        return job.state.seen if job else 0

    def advanced(self, pod: PodState) -> None:
        """Takes note of a pod's assignment and of the latest incarnation it has seen."""
        plan = pod.assignment
        for uid in [key for key, job in self._jobs.items() if job.pod_uid == pod.uid]:
            if not plan or plan.slot or plan.job_uid != uid:
                self._drop(uid)
        if not plan or plan.slot:
            return
        job = self._jobs.get(plan.job_uid)
        if job is None:
            job = self._jobs[plan.job_uid] = _Job(pod.uid, plan)
        elif plan.incarnation < job.assignment.incarnation:
            return  # an earlier pod of slot 0 that is still leaving
        job.pod_uid, job.assignment = pod.uid, plan
        self._apply(job, commit.Planned(plan.incarnation, len(plan.members)))
        self._apply(job, commit.Seen(pod.seen))

    def forget(self, pod_uid: str) -> None:
        """The pod left the node: it coordinates nothing any more."""
        for uid in [key for key, job in self._jobs.items() if job.pod_uid == pod_uid]:
            self._drop(uid)

    def recorded(self, job_uid: str, generation: Generation) -> None:
        """Rank 0 says the record is durable."""
        if job := self._jobs.get(job_uid):
            self._apply(job, commit.Recorded(generation))

    def ask_again(self, job_uid: str) -> None:
        """Rank 0 dialled anew: repeats what it was asked."""
        job = self._jobs.get(job_uid)
        if job and job.state.writing is not None:
            self._ask_record(job.pod_uid, Generation(job.state.incarnation, job.state.writing))

    async def prepare(self, job_uid: str, slot: int, generation: Generation) -> tuple[Verdict, int]:
        """Holds until the generation is decided: (verdict, latest incarnation seen). EXPIRED: try again.

        A cancelled call counts as withdrawn.
        """
        job = self._jobs.get(job_uid)
        if job is None or slot >= len(job.assignment.members) or _held(job) >= MAX_HELD:
            return Verdict.EXPIRED, 0
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Verdict] = loop.create_future()
        job.held.setdefault(generation, {})[answer] = slot
        # Bound to this call: whoever holds one is answered even if nothing else ever happens.
        timer = loop.call_later(commit.DEADLINE_SECONDS, self._apply, job, commit.Tick())
        try:
            # What is overdue must not stand in this one's way.
            self._apply(job, commit.Tick())
            self._apply(job, commit.Prepare(slot, generation))
            async with asyncio.timeout(2 * commit.DEADLINE_SECONDS):
                return await answer, job.state.seen
        except TimeoutError:
            return Verdict.EXPIRED, job.state.seen
        finally:
            timer.cancel()
            calls = job.held.get(generation, {})
            calls.pop(answer, None)
            if not calls:
                job.held.pop(generation, None)
            if slot not in calls.values():
                self._apply(job, commit.Withdraw(slot, generation))

    def _apply(self, job: _Job, event: commit.Event) -> None:
        result = commit.step(job.state, event, asyncio.get_running_loop().time())
        job.state = result.state
        for generation, verdict in result.verdicts:
            log.info(
                "generation decided", job=job.assignment.job, verdict=verdict.value, **generation._asdict()
            )
            for answer in job.held.get(generation, {}):
                if not answer.done():
                    answer.set_result(verdict)
        if result.write:
            self._ask_record(job.pod_uid, result.write)

    def _drop(self, job_uid: str) -> None:
        job = self._jobs.pop(job_uid)
        for calls in job.held.values():
            for answer in calls:
                if not answer.done():
                    answer.set_result(Verdict.EXPIRED)


def _held(job: _Job) -> int:
    return sum(map(len, job.held.values()))
