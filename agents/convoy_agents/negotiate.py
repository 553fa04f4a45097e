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
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier

Plan = Callable[[str], Assignment | None]
"""The assignment of a pod uid as it is now: a peer's address may change while a call is tried."""

PATIENCE_SECONDS = 150.0
"""For one generation. Longer than a call is held: slots whose ranks write at different speeds must meet."""

log = structlog.get_logger()


class Negotiator:
    """Of the pods of one node."""

    def __init__(self, node: str, desk: CommitDesk, peers: PeerClient, plan: Plan) -> None:
        self._node = node
        self._desk = desk
        self._peers = peers
        self._plan = plan

    async def ask(
        self,
        plan: Assignment,
        tier: Tier,
        generation: Generation,
        said: Said | None = None,
    ) -> Answer:
        """How the commit of a generation at a tier ended; EXPIRED when it did not in time."""
        began = time.monotonic()
        answer = Answer(Verdict.EXPIRED, 0)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                answer = await self._ask(plan, tier, generation, said)
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
    ) -> Answer:
        request = hub_pb2.Prepared(
            job_uid=plan.job_uid,
            incarnation=generation.incarnation,
            step=generation.step,
            slot=plan.slot,
            tier=tier.value,
            warrant=plan.warrant,
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
