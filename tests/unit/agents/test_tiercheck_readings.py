"""Tests of the time at which shards that were fetched for a restore are dropped. Before, each pod of the
job on the node must have read its shards or have left the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from convoy_agents.tiercheck.pod_restore import PodRestore
from convoy_agents.tiercheck.rank_server import RankServer
from convoy_agents.wire import hub_pb2

ANYTHING: Any = SimpleNamespace(
    memory_granted=lambda *_: None, record=lambda *_: None, drop_pod=lambda *_: None, by_default=False
)


class Rank:
    """A fake connection of a pod's only rank. The rank sends one request for each type in `questions`, in
    order.
    """

    rank = 0

    def __init__(self, incarnation: int, *questions: str) -> None:
        self.incarnation = incarnation
        self._questions = questions
        self.received: list[str] = []

    @property
    async def frames(self) -> AsyncIterator[dict[str, Any]]:
        for question in self._questions:
            yield {"type": question, "attempt": 0}

    async def send(self, frame: dict[str, Any]) -> None:
        self.received.append(frame["type"])


class Node:
    """A fake node: the pods of a job, its memory, Restores and Committer."""

    def __init__(self) -> None:
        self.pods: dict[str, Any] = {}
        self.unpinned = 0
        self.dropped: set[str] = set()
        """Ids of the shards that the last call of `unpin` was to drop."""
        self.requested, self.decided = asyncio.Event(), asyncio.Event()
        self.decided.set()
        some: Any = self
        self.ranks = RankServer(some, some, some, self.pods.values, ANYTHING, ANYTHING)

    def open(self, job_uid: str) -> Node:
        return self

    def limit(self, own_limit: int) -> int:
        return own_limit

    async def unpin(self, dropped: set[str]) -> None:
        self.unpinned += 1
        self.dropped = set(dropped)

    async def resume(self, plan: Any, attempt: int, *_: Any, **more: Any) -> PodRestore:
        self.requested.set()
        await self.decided.wait()
        fresh = hub_pb2.ResumeReply(outcome=hub_pb2.ResumeReply.FRESH)
        return PodRestore(plan, attempt, fresh, set(plan.ranks), {f"fetched-{plan.pod_uid}"})

    async def copy_restored(self, uid: str, reading: PodRestore) -> set[str]:
        return set()

    def assigned(self, uid: str, incarnation: int) -> None:
        plan = SimpleNamespace(
            pod_uid=uid,
            job_uid="job",
            job="job",
            incarnation=incarnation,
            ranks=(0,),
            memory=ANYTHING,
            memory_limit=0,
        )
        self.pods[uid] = SimpleNamespace(uid=uid, assignment=plan)

    def leaves(self, uid: str) -> None:
        del self.pods[uid]
        self.ranks.drop_pod(uid)

    async def serve(self, uid: str, *questions: str) -> list[str]:
        pod = self.pods[uid]
        line: Any = Rank(pod.assignment.incarnation, *questions)
        await self.ranks.serve(lambda: pod, line)
        received: list[str] = line.received
        return received


async def test_a_pod_that_leaves_during_the_decision_keeps_no_pins() -> None:
    node = Node()
    node.assigned("a", 1)
    node.decided.clear()
    request = asyncio.create_task(node.serve("a", "restore"))
    await node.requested.wait()
    node.leaves("a")
    node.decided.set()
    await request
    node.assigned("b", 1)
    assert await node.serve("b", "restore", "restored") == ["restore", "done"]
    assert node.unpinned == 1


async def test_unfinished_reads_of_an_earlier_incarnation_keep_no_pins() -> None:
    node = Node()
    node.assigned("a", 1)
    await node.serve("a", "restore")
    node.assigned("b", 2)
    await node.serve("b", "restore", "restored")
    assert node.unpinned == 1


async def test_shards_read_by_another_pod_stay_pinned() -> None:
    for incarnation in (1, 2):
        node = Node()
        node.assigned("a", incarnation)
        await node.serve("a", "restore")
        node.assigned("b", 1)
        await node.serve("b", "restore", "restored")
        assert node.unpinned == 0
        await node.serve("a", "restored")
        assert node.unpinned == 1


async def test_drop_job_drops_the_shards_that_a_pod_was_reading() -> None:
    """Pod `a` leaves before it has read its shards. If the job then ends (`drop_job`), the next restore
    must drop only the shards of pod `c`. If not, it must also drop those of pod `b`.
    """
    for over, dropped in ((False, {"fetched-b", "fetched-c"}), (True, {"fetched-c"})):
        node = Node()
        for uid in ("a", "b", "c"):
            node.assigned(uid, 1)
        await node.serve("a", "restore")
        await node.serve("b", "restore", "restored")
        node.leaves("a")
        if over:
            node.ranks.drop_job("job")
        await node.serve("c", "restore", "restored")
        assert node.dropped == dropped


async def test_the_last_rank_that_declines_ends_the_fetches_of_the_pod() -> None:
    node, fetching, ended = Node(), asyncio.Event(), asyncio.Event()

    async def fetch() -> list[tuple[str, str]]:
        fetching.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return []

    node.assigned("a", 1)
    await node.serve("a", "restore")
    node.ranks._pod_restores["a"].start("key", fetch)
    await fetching.wait()
    await node.serve("a", "restored")
    await asyncio.wait_for(ended.wait(), 30)
