"""Tests of commits from the request to the coordinator's decision, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.agents.test_rules import UID, plan
from tests.unit.operator.conftest import virtual  # noqa: F401 - a fixture

from convoy_agents.commit_client import COMMIT_SECONDS, CommitClient
from convoy_agents.commit_coordinator import CommitCoordinator, CommitOutcome
from convoy_agents.pods.assignment import Assignment, MemoryTiers
from convoy_agents.pods.state import PodState
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier

Run = Callable[[Coroutine[Any, Any, None]], None]

ONE, TWO = Generation(1, 10), Generation(1, 20)
MEMBERS = (plan(1).members[0], replace(plan(1).members[1], pod_uid="other"))
FAST = replace(plan(1), members=MEMBERS, memory=MemoryTiers(1, 0))
SLOW = replace(
    FAST, slot=1, rank_offset=2, pod_uid="other", members=(MEMBERS[0], replace(MEMBERS[1], node="one"))
)


def pod(assignment: Assignment) -> PodState:
    return PodState(assignment.pod_uid, connected=True, launcher_incarnation=1, assignment=assignment)


class Ledger:
    """A fake ledger that writes without delay. Its writes fail while its flag `full` is set."""

    def __init__(self) -> None:
        self.written: list[Generation] = []
        self.full = False

    async def committed_record(self, job_uid: str, tier: Tier, generation: Generation) -> None:
        return None

    async def write(self, plan: Any, tier: Tier, generation: Generation, votes: Any) -> bool:
        if not self.full:
            self.written.append(generation)
        return not self.full


class Node:
    """A node whose agent coordinates a job and runs both of the job's slots."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.coordinator = CommitCoordinator(self.ledger)
        self.client = CommitClient(
            "one",
            self.coordinator,
            None,  # type: ignore[arg-type]  # no other node is asked
            lambda uid: FAST if uid == UID else SLOW,
        )
        self.coordinator.update(pod(FAST))

    def request_commit(self, plan: Assignment, generation: Generation) -> asyncio.Task[CommitOutcome]:
        return asyncio.create_task(self.client.request_commit(plan, Tier.LOCAL, generation))


def verdicts(*requests: asyncio.Task[CommitOutcome]) -> list[Verdict | None]:
    return [one.result().verdict if one.done() else None for one in requests]


def test_a_commit_waits_for_a_slow_slot_beyond_one_call(virtual: Run) -> None:  # noqa: F811
    async def work() -> None:
        node = Node()
        fast = node.request_commit(FAST, ONE)
        await asyncio.sleep(100)
        assert verdicts(fast) == [None]
        slow = node.request_commit(SLOW, ONE)
        await asyncio.sleep(5)
        assert verdicts(fast, slow) == [Verdict.COMMITTED] * 2
        assert node.ledger.written == [ONE]

    virtual(work())


def test_an_incomplete_commit_expires(virtual: Run) -> None:  # noqa: F811
    async def work() -> None:
        node = Node()
        fast = node.request_commit(FAST, ONE)
        await asyncio.sleep(COMMIT_SECONDS + 1)
        assert verdicts(fast) == [Verdict.EXPIRED]

    virtual(work())


def test_a_cancelled_call_has_no_vote(virtual: Run) -> None:  # noqa: F811
    async def work() -> None:
        node = Node()
        given_up = node.request_commit(SLOW, ONE)
        await asyncio.sleep(1)
        given_up.cancel()
        fast = [node.request_commit(FAST, ONE), node.request_commit(FAST, TWO)]
        await asyncio.sleep(1)
        assert node.ledger.written == []
        slow = node.request_commit(SLOW, TWO)
        await asyncio.sleep(1)
        assert node.ledger.written == [TWO]
        assert verdicts(*fast, slow) == [Verdict.STALE, Verdict.COMMITTED, Verdict.COMMITTED]

    virtual(work())


def test_a_commit_is_retried_until_the_ledger_can_be_written(virtual: Run) -> None:  # noqa: F811
    async def work() -> None:
        node = Node()
        node.ledger.full = True
        requests = [node.request_commit(FAST, ONE), node.request_commit(SLOW, ONE)]
        await asyncio.sleep(5)
        assert verdicts(*requests) == [None, None]
        node.ledger.full = False
        await asyncio.sleep(5)
        assert verdicts(*requests) == [Verdict.COMMITTED] * 2

    virtual(work())


@pytest.mark.parametrize("later", ["heard of", "planned"])
def test_a_later_incarnation_ends_pending_commits_as_stale(virtual: Run, later: str) -> None:  # noqa: F811
    async def work() -> None:
        node = Node()
        fast = node.request_commit(FAST, ONE)
        await asyncio.sleep(1)
        state = pod(FAST) if later == "heard of" else pod(replace(FAST, incarnation=2))
        node.coordinator.update(replace(state, port_wanted=2))
        await asyncio.sleep(0)
        slow = node.request_commit(SLOW, ONE)
        await asyncio.sleep(1)
        assert [(one.result().verdict, one.result().seen) for one in (fast, slow)] == [(Verdict.STALE, 2)] * 2
        assert node.ledger.written == []

    virtual(work())


def test_a_job_without_memory_tiers_has_no_commit_coordinator(virtual: Run) -> None:  # noqa: F811
    async def work() -> None:
        node = Node()
        node.coordinator.update(pod(replace(FAST, incarnation=2, memory=None)))
        assert node.coordinator.assignment(FAST.job_uid) is None
        answer = await node.coordinator.prepare(FAST.job_uid, 0, Tier.LOCAL, Generation(2, 10))
        assert answer == CommitOutcome(Verdict.EXPIRED, 0)

    virtual(work())
