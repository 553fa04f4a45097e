"""States that other nodes read from this node, and copies of states that this node keeps for other nodes.

A node keeps copies only of the states whose role and revision one of its own pods has. So a node needs no
order of the hub, and a job's states stay on the job's nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from convoy_agents.pods.assignment import Assignment
from convoy_agents.pods.state import PodState
from convoy_agents.states.retained import age_order, drop_superseded, newest
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.peer_transfer import Shortage
from convoy_agents.tiercheck.shares import OTHERS
from convoy_agents.wire import hub_pb2
from convoy_agents.wire.slot_tokens import SlotToken
from convoy_controllers.checkpoint import replica_state
from convoy_controllers.checkpoint.records import Manifest

log = structlog.get_logger()


class HostedStates:
    """The states in this node's memory, as other agents use them. `pods`: returns the states of the node's
    pods.
    """

    def __init__(self, memory_manager: MemoryManager, pods: Callable[[], Iterable[PodState]]) -> None:
        self._memory_manager = memory_manager
        self._pods = pods

    def memories(self, uid: str) -> list[JobMemory]:
        """Return the memories on this node that the owner of the state `uid` may read."""
        found = [one for one in self._memory_manager.jobs if replica_state.may_read(uid, one)]
        return [memory for one in found if (memory := self._memory_manager.get(one)) is not None]

    async def offer(
        self, request: hub_pb2.OfferRequest, token: SlotToken, manifest: Manifest
    ) -> hub_pb2.OfferReply:
        """Decide whether this node keeps a copy of a state, and which of its chunks it needs."""
        plan = self._own_plan(request.job_uid)
        if plan is None or plan.memory is None:
            return _later("no replica of the same role and revision has started on this node")
        try:
            memory = self._memory_manager.open(request.job_uid)
            last = await memory.inspect(newest)
            if token.incarnation < memory.seen or (last and age_order(manifest) < age_order(last)):
                return _refused("this node has a newer state")
            await memory.record_seen(token.incarnation)
            # The token of this node's own replica proves to the hub that the node may hold the copy.
            await self._memory_manager.set_slot_token(memory, plan.slot_token)
            wanted = await memory.expect(manifest, OTHERS, plan.memory_limit, copy_of=token.node)
        except Shortage as error:
            return _later(str(error))
        if not wanted:
            await self.admit(memory, manifest.id)
        return hub_pb2.OfferReply(decision=hub_pb2.OfferReply.WANTED, chunks=wanted)

    async def admit(self, memory: JobMemory, key: str) -> None:
        """Keep a copy whose chunks have all arrived, and drop older copies. Raises Damaged if a chunk is
        missing.
        """
        await memory.use(lambda store: store.admit(key))
        await memory.free(drop_superseded)

    async def manifests(self, uid: str) -> list[tuple[str, Manifest]]:
        """Return the complete states that the owner of the state `uid` may read, with their uids."""
        found = []
        for memory in self.memories(uid):
            try:
                one = await memory.inspect(newest)
            except OSError as error:
                log.info("memory of a state not read", uid=memory.job_uid, why=str(error))
                continue
            if one is not None:
                found.append((memory.job_uid, one))
        return found

    def _own_plan(self, uid: str) -> Assignment | None:
        """Return the state's assignment of a pod on this node with the same role and revision."""
        plans = (pod.assignment.of_state() for pod in self._pods() if pod.assignment)
        return next((plan for plan in plans if plan and replica_state.may_read(plan.job_uid, uid)), None)


def _later(reason: str) -> hub_pb2.OfferReply:
    return hub_pb2.OfferReply(decision=hub_pb2.OfferReply.LATER, reason=reason)


def _refused(reason: str) -> hub_pb2.OfferReply:
    return hub_pb2.OfferReply(decision=hub_pb2.OfferReply.REFUSED, reason=reason)
