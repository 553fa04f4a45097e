"""A slot's side of a commit: asks the agent of slot 0 until the generation is decided or the time is up."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

import grpc
import structlog

from convoy_agents import metrics
from convoy_agents.backoff import Backoff
from convoy_agents.desk import Answer, CommitDesk, Said
from convoy_agents.enrol import describe
from convoy_agents.peer import PeerClient
from convoy_agents.pods.assignment import Assignment, Member
from convoy_agents.pods.state import PodState
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier

Decide = Callable[[str, Tier, Generation, Verdict, int], None]
"""(pod uid, tier, generation, verdict, latest incarnation seen)"""

Plan = Callable[[str], Assignment | None]
"""The assignment of a pod uid as it is now: a peer's address may change while a call is tried."""

PATIENCE_SECONDS = 150.0
"""For one generation. Longer than a call is held: slots whose ranks write at different speeds must meet."""

log = structlog.get_logger()


class Negotiator:
    """One task per pod and generation; at most pods x MAX_PREPARING of them."""

    def __init__(self, node: str, desk: CommitDesk, peers: PeerClient, decide: Decide, plan: Plan) -> None:
        self._node = node
        self._desk = desk
        self._peers = peers
        self._decide = decide
        self._plan = plan
        self._tasks: dict[tuple[str, Generation], asyncio.Task[None]] = {}

    def prepare(self, pod: PodState, generation: Generation, parent: tuple[int, int] | None) -> None:
        """All ranks of the pod hold their part. A generation that is already asked for is not asked twice."""
        for (uid, older), running in list(self._tasks.items()):
            if uid == pod.uid and older not in pod.preparing:
                running.cancel()  # newer ones have taken its place
        key = (pod.uid, generation)
        if pod.assignment is None or key in self._tasks:
            return
        task = asyncio.create_task(self._run(pod.assignment, generation, parent))
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._ended(key, done))

    def advanced(self, pod: PodState) -> None:
        """Refuses what a later incarnation than its own has overtaken."""
        for (uid, generation), task in list(self._tasks.items()):
            if uid == pod.uid and generation.incarnation < pod.seen:
                self._tasks.pop((uid, generation))
                task.cancel()
                metrics.COMMITS.labels(Verdict.STALE.value).inc()
                self._decide(uid, Tier.REMOTE, generation, Verdict.STALE, pod.seen)

    def forget(self, uid: str) -> None:
        """The pod left."""
        for key, task in list(self._tasks.items()):
            if key[0] == uid:
                task.cancel()

    async def close(self) -> None:
        """Ends every task."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: tuple[str, Generation], task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled() and (error := task.exception()):
            log.error("commit failed", pod_uid=key[0], exc_info=error)

    async def _run(self, plan: Assignment, generation: Generation, parent: tuple[int, int] | None) -> None:
        answer = await self.ask(plan, Tier.REMOTE, generation, parent=parent)
        self._decide(plan.pod_uid, Tier.REMOTE, generation, answer.verdict, answer.seen)

    async def ask(
        self,
        plan: Assignment,
        tier: Tier,
        generation: Generation,
        said: Said | None = None,
        parent: tuple[int, int] | None = None,
    ) -> Answer:
        """How the commit of a generation at a tier ended; EXPIRED when it did not in time."""
        began = time.monotonic()
        answer = Answer(Verdict.EXPIRED, 0)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                answer = await self._ask(plan, tier, generation, said, parent)
        except TimeoutError:
            log.warning(
                "commit not decided in time",
                job=plan.job,
                slot=plan.slot,
                tier=tier.value,
                **generation._asdict(),
            )
        if answer.verdict is Verdict.COMMITTED:
            metrics.COMMIT_SECONDS.observe(time.monotonic() - began)
        metrics.COMMITS.labels(answer.verdict.value).inc()
        return answer

    async def _ask(
        self,
        plan: Assignment,
        tier: Tier,
        generation: Generation,
        said: Said | None,
        parent: tuple[int, int] | None,
    ) -> Answer:
        request = hub_pb2.Prepared(
            job_uid=plan.job_uid,
            incarnation=generation.incarnation,
            step=generation.step,
            parent_incarnation=parent[0] if parent else 0,
            parent_step=parent[1] if parent else 0,
            slot=plan.slot,
            tier=tier.value,
        )
        if said is not None:
            request.world_size, request.torch, request.plan, request.last = said.facts
            request.shards.extend(
                hub_pb2.ShardName(shard=shard, id=key) for shard, key in said.shards.items()
            )

        async def here(plan: Assignment) -> Answer:
            return await self._desk.prepare(plan.job_uid, plan.slot, tier, generation, said)

        return await self._answered(plan, here, lambda member: self._peers.prepare(member, request))

    async def abandon(self, plan: Assignment, generation: Generation) -> None:
        """A rank of the slot could not save it: tells the agent of slot 0, if that can be done in time."""
        request = hub_pb2.Abandoned(
            job_uid=plan.job_uid,
            incarnation=generation.incarnation,
            step=generation.step,
            slot=plan.slot,
        )

        async def here(plan: Assignment) -> Answer:
            return self._desk.abandon(plan.job_uid, generation)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._answered(plan, here, lambda member: self._peers.abandon(member, request))

    async def _answered(
        self,
        plan: Assignment,
        here: Callable[[Assignment], Awaitable[Answer]],
        there: Callable[[Member], Awaitable[Answer]],
    ) -> Answer:
        """Asks slot 0's agent, which may be this one, until it decides or the caller's patience ends."""
        backoff = Backoff(first=0.05, cap=2.0)
        while True:
            plan = self._plan(plan.pod_uid) or plan
            coordinator = plan.members[0]
            try:
                answer = await (here(plan) if coordinator.node == self._node else there(coordinator))
                if answer.verdict is not Verdict.EXPIRED:
                    return answer
            except grpc.aio.AioRpcError as error:
                log.info("coordinator does not answer", node=coordinator.node, why=describe(error))
            except TimeoutError:
                log.info("no certificate to ask with", node=coordinator.node)
            await asyncio.sleep(backoff.next())
