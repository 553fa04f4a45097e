"""Surveys: this node's report on a job's memory to the agent that forms an incarnation."""

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
    """The surveys of one node. `pods`: returns the current states of its pods."""

    def __init__(self, memory_manager: MemoryManager, pods: Callable[[], Iterable[PodState]]) -> None:
        self._memory_manager = memory_manager
        self._pods = pods

    def plan(self, job_uid: str) -> Assignment | None:
        """Return the newest assignment of the job to a pod of this node; if there are several, that of the
        lowest slot.
        """
        plans = [one.assignment for one in self._pods() if one.assignment]
        mine = [plan for plan in plans if plan.job_uid == job_uid]
        return max(mine, key=lambda plan: (plan.incarnation, -plan.slot), default=None)

    def current_plan(self, plan: Assignment) -> Assignment:
        """Return the current version of an assignment: the hub may have sent it again with another
        authority's slot token.
        """
        now = self.plan(plan.job_uid)
        return now if now is not None and now.incarnation == plan.incarnation else plan

    async def renew_slot_token(self, job_memory: JobMemory) -> None:
        """Replace the slot token of the job's memory once a token of another authority has come for a slot
        on this node.
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
        """Return the inventory of the job, and refuse earlier incarnations from then on, so that no commit
        happens behind the surveyor's back. OSError.
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
