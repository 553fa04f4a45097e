"""The scrubber. At intervals it checks every byte of the checkpoints in this node's memory. It drops each
damaged shard and fetches it again from another node.

A restore also detects damage, but the copies on other nodes may be lost by then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

import structlog

from convoy_agents import metrics
from convoy_agents.pods.assignment import Assignment, NodeAddress
from convoy_agents.pods.state import PodState
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.peer_transfer import PeerTransfer, Shortage, Unreachable

RATE = 256e6
"""Bytes checked per second: a fortieth of the rate at which a core can check."""

log = structlog.get_logger()


class Scrubber:
    """The scrubber of one node."""

    def __init__(
        self,
        node: str,
        memory_manager: MemoryManager,
        peer_transfer: PeerTransfer,
        pods: Callable[[], Iterable[PodState]],
        seconds: float,
    ) -> None:
        """`seconds`: the maximum interval between two scrubs, in seconds."""
        self._node = node
        self._memory_manager = memory_manager
        self._peer_transfer = peer_transfer
        self._pods = pods
        self._seconds = seconds

    async def run(self) -> None:
        """Scrub at random intervals of 80 % to 100 % of `seconds`, until cancelled."""
        while True:
            await asyncio.sleep(self._seconds * random.uniform(0.8, 1.0))  # noqa: S311 - spreads load
            await self.scrub()

    async def scrub(self) -> None:
        """Check every shard in this node's memory once. Drop each damaged shard, and fetch it from another
        node.
        """
        for job_uid in self._memory_manager.jobs:
            job_memory = self._memory_manager.get(job_uid)
            if job_memory is None:
                continue
            try:
                sizes = await job_memory.inspect(
                    lambda store: {key: one.size for key, one in store.manifests.items()}
                )
                for key, size in sizes.items():
                    if await job_memory.drop_if_damaged(key):
                        await self._replace(job_memory, key)
                    metrics.SCRUBBED_BYTES.inc(size)
                    await asyncio.sleep(size / RATE)
            except OSError as error:
                log.info("scrub of a job failed", job_uid=job_uid, why=str(error))

    async def _replace(self, job_memory: JobMemory, key: str) -> None:
        for place, plan in self._places(job_memory.job_uid):
            try:
                await self._peer_transfer.fetch(place, job_memory, plan, key)
            except (Unreachable, Damaged, *Shortage) as error:
                log.info(
                    "damaged shard not replaced from a node",
                    job_uid=job_memory.job_uid,
                    node=place.node,
                    why=str(error),
                )
                continue
            log.info("shard replaced", job_uid=job_memory.job_uid, node=place.node)
            metrics.REPLACED.inc()
            return
        log.error("DAMAGED SHARD NOT REPLACED: no reachable node has it", job_uid=job_memory.job_uid)

    def _places(self, job_uid: str) -> list[tuple[NodeAddress, Assignment]]:
        """Return the other nodes that may have the job's shards. Each comes with the assignment to use in
        calls to that node: the newest on this node, because nodes refuse earlier incarnations.
        """
        given = [one.assignment for one in self._pods() if one.assignment]
        plans = [kept for plan in given for kept in (plan, plan.of_state()) if kept and kept.memory]
        mine = [plan for plan in plans if plan.job_uid == job_uid]
        mine.sort(key=lambda plan: plan.incarnation, reverse=True)
        found: dict[str, tuple[NodeAddress, Assignment]] = {}
        for plan in mine:
            members = (NodeAddress(one.node, one.peer_address) for one in plan.members)
            memory = (*plan.memory.hosts, *plan.memory.holders) if plan.memory else ()
            for place in (*memory, *members):
                if place.node != self._node:
                    found.setdefault(place.node, (place, mine[0]))
        return list(found.values())
