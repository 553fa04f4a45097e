"""Restores the pods of this node from checkpoints. The agent of slot 0 decides which generation is
restored, and names the nodes that have its shards. This agent fetches the shards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

import structlog

from convoy_agents.backoff import Backoff
from convoy_agents.pods.assignment import Assignment, NodeAddress
from convoy_agents.tiercheck.deciding import ADOPT_SECONDS, STORE_SECONDS, Broken, Decisions, RestoreFailed
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.keyed_lock import KeyedLock
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.peer_transfer import (
    Denied,
    PeerTransfer,
    Shortage,
    Unreachable,
    marks_from_wire,
)
from convoy_agents.tiercheck.pod_restore import PodRestore, Unreadable
from convoy_agents.tiercheck.remote import Remotes
from convoy_agents.tiercheck.stores.errors import Stopped, StoreError
from convoy_agents.tiercheck.surveying import Surveys
from convoy_agents.tiercheck.trouble_reporter import TroubleReporter
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint import records, restore

FETCH_SECONDS = 20.0
"""Seconds for which requests to a node or store that does not answer are retried. After this time the shard
is fetched from the next node that has it.
"""
PARALLEL = 4
"""Maximum number of shards of one pod's restore that are fetched and checked at the same time."""
DECISION_SECONDS = 150.0
"""Seconds that a slot waits until slot 0's agent has decided which generation is restored."""

log = structlog.get_logger()


class ShardSources(NamedTuple):
    """The clients that fetch shards which are not on this node."""

    peers: PeerTransfer
    store: Remotes


class Restores:
    """Runs the restores of one node's pods."""

    def __init__(
        self,
        node: str,
        memory_manager: MemoryManager,
        surveys: Surveys,
        sources: ShardSources,
        troubles: TroubleReporter,
        decisions: Decisions,
    ) -> None:
        self._node = node
        self._memory_manager = memory_manager
        self._surveys = surveys
        self._sources = sources
        self._troubles = troubles
        self._decisions = decisions
        self._fetching: KeyedLock[tuple[str, str]] = KeyedLock()

    async def resume(
        self, plan: Assignment, attempt: int, broken: Broken, *, bases: bool = False
    ) -> PodRestore:
        """Get the decision for the pod, and start the incarnation in this node's memory. Return the pod's
        restore. Raises RestoreFailed if slot 0's agent cannot decide, or if a shard cannot be fetched.

        Every rank of the pod calls this and gets the same decision.
        """
        reply = await self._request_decision(plan, attempt, broken, bases)
        if reply.outcome == hub_pb2.ResumeReply.STALE:
            raise RestoreFailed("a later incarnation of this job has started")
        job_memory = self._memory_manager.open(plan.job_uid)
        branch = records.parse_branch(reply.branch)
        known = [records.parse_record(text) for text in reply.records]
        job_memory.uses.pin(link.id for chain in reply.chains for link in chain.links)
        if not await job_memory.start_incarnation(branch, marks_from_wire(reply.marks), known):
            raise RestoreFailed("a later incarnation of this job has started on this node")
        return PodRestore(plan, attempt, reply, set(plan.ranks))

    def start_fetches(self, pod_restore: PodRestore) -> None:
        """Start to fetch and check all shards, before the ranks ask for them one after another. Later calls
        for the same restore do nothing.
        """
        shards, running = pod_restore.shards, asyncio.Semaphore(PARALLEL)
        # Each pod starts at another shard, so that not all pods read from one node at the same time.
        first = pod_restore.plan.slot % max(1, len(shards))
        for shard in [*shards[first:], *shards[:first]]:
            for key, places in pod_restore.chain(shard):

                async def fetch(key: str = key, places: Sequence[NodeAddress] = places) -> Unreadable:
                    async with running:
                        return await self._fetch(pod_restore, key, places)

                pod_restore.start(key, fetch)

    async def _request_decision(
        self, plan: Assignment, attempt: int, broken: Broken, bases: bool
    ) -> hub_pb2.ResumeReply:
        request = hub_pb2.ResumeRequest(
            job_uid=plan.job_uid,
            incarnation=plan.incarnation,
            slot=plan.slot,
            attempt=attempt,
            broken=[hub_pb2.BrokenShard(node=node, id=key) for node, key in broken],
            bases=bases,
        )
        deadline = time.monotonic() + DECISION_SECONDS + (ADOPT_SECONDS if plan.resume_uid else 0.0)
        pause = Backoff(first=0.05, cap=1.0)
        first = plan.members[0]
        why, store = "", False
        while time.monotonic() < deadline:
            try:
                if first.node == self._node:
                    reply = await self._decisions.decide(
                        plan.job_uid, plan.incarnation, attempt, broken, bases=bases
                    )
                else:
                    place = NodeAddress(first.node, first.peer_address)
                    reply = await self._sources.peers.resume(place, request)
                if reply.outcome != hub_pb2.ResumeReply.UNKNOWN:
                    self._troubles.restorable(plan)
                    return reply
                why = reply.message or f"{first.node} does not coordinate {plan.job}"
                store = reply.store_unreachable
                if store:
                    self._troubles.not_restored(plan, why)
            except Unreachable as error:
                why = str(error)
            now = self._surveys.plan(plan.job_uid)
            if now is not None and now.incarnation == plan.incarnation:
                first = now.members[0]  # The hub may have sent a changed address of slot 0's agent.
            await asyncio.sleep(pause.next())
        raise RestoreFailed(why, store=store)

    async def fetch(self, pod_restore: PodRestore, key: str, places: Sequence[NodeAddress]) -> Unreadable:
        """Fetch a shard to this node and check every byte. Return a pair (node, shard id) for each of
        `places` from which the shard could not be read undamaged. If all of `places` are returned, this
        node does not have the shard.

        A restore fetches and checks each shard once, for all ranks of the pod.
        """
        pod_restore.start(key, lambda: self._fetch(pod_restore, key, places))
        return await pod_restore.result(key)

    async def _fetch(self, pod_restore: PodRestore, key: str, places: Sequence[NodeAddress]) -> Unreadable:
        job_uid = pod_restore.plan.job_uid
        async with self._fetching.hold((job_uid, key)):
            return await self._fetch_in_turn(pod_restore, self._memory_manager.open(job_uid), key, places)

    async def _fetch_in_turn(
        self, pod_restore: PodRestore, job_memory: JobMemory, key: str, places: Sequence[NodeAddress]
    ) -> Unreadable:
        plan = pod_restore.plan
        job_memory.uses.pin([key])
        if await job_memory.verified_path(key) is not None:
            return []
        broken = [(self._node, key)] if any(place.node == self._node for place in places) else []
        order = restore.read_order([place.node for place in places], self._node, plan.slot)
        by_node = {place.node: place for place in places}
        left = [by_node[node] for node in order if node != self._node]
        deadline, pause = time.monotonic() + FETCH_SECONDS, Backoff(first=0.2, cap=5.0)
        while left:
            refused, why = [], ""
            for place in left:
                try:
                    if await self._fetch_from(plan, job_memory, key, place):
                        pod_restore.fetched.add(key)
                        return broken
                    broken.append((place.node, key))
                except Denied as error:
                    refused.append(place)
                    why = str(error)
            # A node may refuse because it does not have the new signing key yet, although its shard is
            # undamaged. So retry the nodes that refused until the deadline.
            if refused and time.monotonic() > deadline:
                raise RestoreFailed(why)
            if left := refused:
                await asyncio.sleep(pause.next())
        return broken

    async def _fetch_from(
        self, plan: Assignment, job_memory: JobMemory, key: str, place: NodeAddress
    ) -> bool:
        """Fetch a shard from one node or from the store, with retries. Return False if it cannot be fetched
        from there.

        Raises Denied if the node refuses this slot. Raises RestoreFailed if this node has too little
        memory, or if the store does not answer.
        """
        deadline = time.monotonic() + FETCH_SECONDS
        pause = Backoff(first=0.2, cap=5.0)
        while True:
            try:
                if place.node == restore.REMOTE:
                    await self._sources.store.fetch(plan, job_memory, key, plan.memory_limit)
                else:
                    await self._sources.peers.fetch(place, job_memory, self._surveys.current_plan(plan), key)
                return True
            except Shortage as error:
                why = f"no memory for restored shard {key[:12]}: {error}"
                raise RestoreFailed(why, memory=True) from error
            except Denied:
                raise
            except (Unreachable, StoreError) as error:
                # The other agent may be restarting, or the store may fail for a short time. Retry, because
                # otherwise the generation could not be restored.
                log.warning(
                    "cannot fetch a shard", job=plan.job, node=place.node or "the store", why=str(error)
                )
                if time.monotonic() > deadline:
                    if place.node == restore.REMOTE:
                        await self._check_store(plan)
                    return False
            except (Damaged, Stopped) as error:
                log.warning(
                    "cannot fetch a shard", job=plan.job, node=place.node or "the store", why=str(error)
                )
                return False
            await asyncio.sleep(pause.next())

    async def _check_store(self, plan: Assignment) -> None:
        """Raise RestoreFailed if the store does not answer at all, because the shard may still be in the
        store.
        """
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await self._sources.store.inventory(plan)
        except (StoreError, TimeoutError) as error:
            why = str(error) or f"the store does not answer within {STORE_SECONDS:.0f} s"
            self._troubles.not_restored(plan, why)
            raise RestoreFailed(why, store=True) from error
