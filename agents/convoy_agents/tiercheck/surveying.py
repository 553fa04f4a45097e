"""Surveys: reports on the checkpoints of a job in this node's memory. Slot 0's agent requests them to
decide from which generation an incarnation starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from convoy_agents.pods.assignment import Assignment
from convoy_agents.pods.state import PodState
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.peer_transfer import Surveyed
from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_agents.wire import slot_tokens
from convoy_controllers.checkpoint.records import Branch, Inventory

log = structlog.get_logger()


class Surveys:
    """Answers surveys of this node's memory. `pods`: returns the current states of the node's pods."""

    def __init__(self, memory_manager: MemoryManager, pods: Callable[[], Iterable[PodState]]) -> None:
        self._memory_manager = memory_manager
        self._pods = pods

    def plan(self, job_uid: str) -> Assignment | None:
        """Return the assignment of the job's latest incarnation on this node. If several pods have one,
        return that of the lowest slot.
        """
        plans = [one.assignment for one in self._pods() if one.assignment]
        mine = [plan for plan in plans if plan.job_uid == job_uid]
        return max(mine, key=lambda plan: (plan.incarnation, -plan.slot), default=None)

    def current_plan(self, plan: Assignment) -> Assignment:
        """Return the current version of an assignment. The hub may have sent it again with a slot token
        that a new authority has signed.
        """
        now = self.plan(plan.job_uid)
        return now if now is not None and now.incarnation == plan.incarnation else plan

    async def renew_slot_token(self, job_memory: JobMemory) -> None:
        """Replace the stored slot token of the job by the token of the current assignment, if the two were
        signed with different keys.
        """
        plan = self.plan(job_memory.job_uid)
        if (
            plan
            and job_memory.slot_token
            and slot_tokens.signing_key_id(plan.slot_token)
            != slot_tokens.signing_key_id(job_memory.slot_token)
        ):
            try:
                await self._memory_manager.set_slot_token(job_memory, plan.slot_token)
            except OSError as error:
                log.warning("slot token not renewed", job=plan.job, why=str(error))

    async def survey(self, job_uid: str, incarnation: int, member: bool) -> Surveyed:
        """Return everything that this node's memory holds of the job. From then on, refuse requests of
        earlier incarnations. Otherwise they could commit a generation that the survey does not contain.

        Raises OSError if the memory cannot be used. `member`: True if a slot of the incarnation is on this
        node.
        """
        plan = self.plan(job_uid)
        known = plan.incarnation if plan else 0
        job_memory = self._memory_manager.open(job_uid) if member else self._memory_manager.get(job_uid)
        if job_memory is None:
            return Surveyed(True, known, {}, Inventory())
        seen = max(known, job_memory.seen)
        if seen > incarnation or (member and known < incarnation):
            return Surveyed(False, seen, {}, Inventory())
        job_memory.seen = incarnation
        if member and plan is not None:
            await self._memory_manager.set_slot_token(job_memory, plan.slot_token)

        def note(store: ShardStore) -> Surveyed:
            store.record_seen(incarnation)
            if member and incarnation not in store.branches:
                store.add_branch(Branch(incarnation, decided=False))
            return Surveyed(True, incarnation, dict(store.marks), store.inventory)

        return await job_memory.use(note)
