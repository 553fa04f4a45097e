"""The client side of a commit. For a slot of this node, it repeats a call to slot 0's agent until that
agent has decided on the commit or the time limit is reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

import grpc
import structlog

from convoy_agents import metrics
from convoy_agents.backoff import Backoff
from convoy_agents.commit_coordinator import CommitCoordinator, CommitOutcome, PrepareVote
from convoy_agents.enrol import describe
from convoy_agents.peer import PeerClient
from convoy_agents.pods.assignment import Assignment, Member
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier

Plan = Callable[[str], Assignment | None]
"""A function that returns the current assignment of a pod, given the pod's uid. CommitClient calls it
before each attempt, because the address of slot 0's agent may have changed.
"""

COMMIT_SECONDS = 150.0
"""Seconds to wait for the decision on one generation. One Prepare call may expire while ranks of other
slots are still writing their shards. COMMIT_SECONDS is longer than the deadline of such a call, so the
call can be repeated.
"""

log = structlog.get_logger()


class CommitClient:
    """Requests commits for the pods of one node."""

    def __init__(self, node: str, coordinator: CommitCoordinator, peers: PeerClient, plan: Plan) -> None:
        self._node = node
        self._coordinator = coordinator
        self._peers = peers
        self._plan = plan

    async def request_commit(
        self,
        plan: Assignment,
        tier: Tier,
        generation: Generation,
        vote: PrepareVote | None = None,
    ) -> CommitOutcome:
        """Request the commit of a generation at a tier, and return the outcome. The verdict is EXPIRED if
        nothing is decided within COMMIT_SECONDS.
        """
        began = time.monotonic()
        outcome = CommitOutcome(Verdict.EXPIRED, 0)
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                outcome = await self._prepare(plan, tier, generation, vote)
        except TimeoutError:
            log.warning(
                "commit not decided in time",
                job=plan.job,
                slot=plan.slot,
                tier=tier.value,
                **generation._asdict(),
            )
        if outcome.verdict is Verdict.COMMITTED:
            metrics.COMMIT_SECONDS.observe(time.monotonic() - began)
        metrics.COMMITS.labels(outcome.verdict.value).inc()
        return outcome

    async def _prepare(
        self,
        plan: Assignment,
        tier: Tier,
        generation: Generation,
        vote: PrepareVote | None,
    ) -> CommitOutcome:
        request = hub_pb2.PrepareRequest(
            job_uid=plan.job_uid,
            incarnation=generation.incarnation,
            step=generation.step,
            slot=plan.slot,
            tier=tier.value,
            slot_token=plan.slot_token,
        )
        if vote is not None:
            request.world_size, request.torch, request.plan, request.last = vote.metadata
            request.shards.extend(
                hub_pb2.ShardName(shard=shard, id=key) for shard, key in vote.shards.items()
            )

        async def here(plan: Assignment) -> CommitOutcome:
            return await self._coordinator.prepare(plan.job_uid, plan.slot, tier, generation, vote)

        return await self._until_decided(plan, here, lambda member: self._peers.prepare(member, request))

    async def abandon(self, plan: Assignment, generation: Generation) -> None:
        """Report to slot 0's agent that this slot could not save a generation. If that agent does not
        respond within COMMIT_SECONDS, return without an error.
        """
        request = hub_pb2.AbandonRequest(
            job_uid=plan.job_uid,
            incarnation=generation.incarnation,
            step=generation.step,
            slot=plan.slot,
        )

        async def here(plan: Assignment) -> CommitOutcome:
            return self._coordinator.abandon(plan.job_uid, generation)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._until_decided(plan, here, lambda member: self._peers.abandon(member, request))

    async def _until_decided(
        self,
        plan: Assignment,
        here: Callable[[Assignment], Awaitable[CommitOutcome]],
        there: Callable[[Member], Awaitable[CommitOutcome]],
    ) -> CommitOutcome:
        """Call slot 0's agent until its verdict is not EXPIRED, and return the outcome.

        The function calls `here` if this agent is slot 0's agent, else `there`. It retries after errors,
        without a time limit of its own.
        """
        backoff = Backoff(first=0.05, cap=2.0)
        while True:
            plan = self._plan(plan.pod_uid) or plan
            first = plan.members[0]
            try:
                outcome = await (here(plan) if first.node == self._node else there(first))
                if outcome.verdict is not Verdict.EXPIRED:
                    return outcome
            except grpc.aio.AioRpcError as error:
                log.info("commit coordinator does not respond", node=first.node, why=describe(error))
            except TimeoutError:
                log.info("this agent has no certificate to call the commit coordinator", node=first.node)
            await asyncio.sleep(backoff.next())
