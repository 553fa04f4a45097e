"""Restores the state of a replica: its own newest state, else the newest of its role and revision."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import structlog

from convoy_agents.pods.assignment import Assignment, NodeAddress
from convoy_agents.states.hosting import HostedStates
from convoy_agents.states.retained import age_order
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.peer_transfer import PeerTransfer, Unreachable
from convoy_agents.tiercheck.shares import OTHERS
from convoy_controllers.checkpoint import replica_state
from convoy_controllers.checkpoint.records import Manifest

ATTEMPTS = 2
"""Maximum number of attempts to fetch a state from one node."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A complete state from which a replica may be restored."""

    uid: str
    manifest: Manifest
    place: NodeAddress | None = None
    """The node that has the state; None for this node."""


@dataclass(frozen=True, slots=True)
class RestoredState:
    """A state in this node's memory, with the file that begins with its bytes."""

    candidate: Candidate
    path: Path

    @property
    def replica(self) -> int:
        """Return the number of the replica that saved the state."""
        found = replica_state.parse(self.candidate.uid)
        return found.replica if found else 0


def ordered(own: str, found: list[Candidate]) -> list[Candidate]:
    """Return the candidates in the order of the attempts: those of the replica `own` first, then the
    newest. Of equal states, the one on this node is first.
    """

    def key(one: Candidate) -> tuple[bool, int, int, bool]:
        step, incarnation = age_order(one.manifest)
        return one.uid != own, -step, -incarnation, one.place is not None

    return sorted(found, key=key)


class StateRestores:
    """Restores the replicas of one node."""

    def __init__(
        self, node: str, memory_manager: MemoryManager, hosted: HostedStates, peers: PeerTransfer
    ) -> None:
        self._node = node
        self._memory_manager = memory_manager
        self._hosted = hosted
        self._peers = peers

    async def restore(self, plan: Assignment) -> RestoredState | None:
        """Return the state from which the replica of `plan` starts; None if there is none. Every byte of it
        has been checked.

        Raises BudgetExceeded, ShareExhausted or OSError if this node has no memory for the state.
        """
        memory = self._memory_manager.open(plan.job_uid)
        found = [Candidate(uid, one) for uid, one in await self._hosted.manifests(plan.job_uid)]
        for candidate in ordered(plan.job_uid, found + await self._remote(plan)):
            if (path := await self._bring(plan, memory, candidate)) is not None:
                return RestoredState(candidate, path)
        return None

    async def _remote(self, plan: Assignment) -> list[Candidate]:
        places = (*plan.memory.hosts, *plan.memory.holders) if plan.memory else ()
        others = {one.node: one for one in places if one.node != self._node}
        answers = await asyncio.gather(*(self._list(plan, place) for place in others.values()))
        return [one for answer in answers for one in answer]

    async def _list(self, plan: Assignment, place: NodeAddress) -> list[Candidate]:
        try:
            found = await self._peers.list_states(place, plan)
        except Unreachable as error:
            log.info("states of a node not read", job=plan.job, node=place.node, why=str(error))
            return []
        return [Candidate(uid, one, place) for uid, one in found if replica_state.may_read(plan.job_uid, uid)]

    async def _bring(self, plan: Assignment, memory: JobMemory, candidate: Candidate) -> Path | None:
        """Bring a state into the replica's memory. Return the path of its file; None if it is damaged, or no
        longer there.
        """
        key, place = candidate.manifest.id, candidate.place
        for _ in range(ATTEMPTS):
            try:
                if place is not None:
                    await self._peers.fetch(place, memory, plan, key, of=candidate.uid)
                elif candidate.uid != plan.job_uid:
                    await self._copy(plan, memory, candidate)
                if (path := await memory.verified_path(key)) is not None or place is None:
                    return path
            except (Unreachable, Damaged) as error:
                log.warning("state not restored", job=plan.job, uid=candidate.uid, why=str(error))
        return None

    async def _copy(self, plan: Assignment, memory: JobMemory, candidate: Candidate) -> None:
        """Copy the state of another replica on this node. Raises Damaged if it is damaged, or has been
        replaced.
        """
        other = self._memory_manager.get(candidate.uid)
        if other is None:
            raise Damaged("the state was released")
        key = candidate.manifest.id
        for index in await memory.expect(candidate.manifest, OTHERS, plan.memory_limit):
            await memory.put(key, index, await other.read(key, index))
        await memory.use(lambda store: store.admit(key))
