"""Sends copies of the newest states of this node's replicas to other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from convoy_agents.pods.assignment import Assignment
from convoy_agents.states.retained import drop_superseded, newest, superseded
from convoy_agents.tiercheck.copying import ShardCopier
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.trouble_reporter import TroubleReporter
from convoy_controllers.checkpoint.records import Manifest

COPY_SECONDS = 20.0
"""Seconds for which the copies of one state are tried while it occupies a buffer. A newer state, or another
host, then comes first.
"""

Copied = Callable[[Assignment, Manifest], None]
"""A callback for a state whose copies are complete."""

log = structlog.get_logger()


class StateCopies:
    """Copies the newest state of each replica to its hosts, and drops older states. `plan`: returns the
    state's assignment of a pod by its uid.
    """

    def __init__(
        self,
        memory_manager: MemoryManager,
        copier: ShardCopier,
        plan: Callable[[str], Assignment | None],
        troubles: TroubleReporter,
        copied: Copied,
    ) -> None:
        self._memory_manager = memory_manager
        self._copier = copier
        self._plan = plan
        self._troubles = troubles
        self._copied = copied
        self._wanted: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._hosts: dict[str, set[str]] = {}
        """Names of the nodes to which a pod's state was last sent, by pod uid."""

    def start(self, pod_uid: str) -> None:
        """Copy the pod's newest state as soon as an earlier state is copied. Call this after each save,
        after a restore, and when the hosts may have changed.
        """
        self._wanted.add(pod_uid)
        if pod_uid not in self._tasks:
            task = self._tasks[pod_uid] = asyncio.create_task(self._run(pod_uid))
            task.add_done_callback(partial(self._ended, pod_uid))

    def drop_pod(self, uid: str) -> None:
        """Copy nothing more of a pod that left the node."""
        self._wanted.discard(uid)
        self._hosts.pop(uid, None)
        if task := self._tasks.get(uid):
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, pod_uid: str, task: asyncio.Task[None]) -> None:
        del self._tasks[pod_uid]
        if not task.cancelled() and (error := task.exception()):
            log.error("state not copied", pod_uid=pod_uid, exc_info=error)

    async def _run(self, pod_uid: str) -> None:
        while pod_uid in self._wanted:
            self._wanted.discard(pod_uid)
            plan = self._plan(pod_uid)
            memory = self._memory_manager.get(plan.job_uid) if plan else None
            if plan is None or memory is None:
                return
            if await memory.inspect(superseded):
                await memory.free(drop_superseded)
            last = await memory.inspect(newest)
            if last is not None:
                await self._copy(plan, memory, last)

    async def _copy(self, plan: Assignment, memory: JobMemory, state: Manifest) -> None:
        names = {one.node for one in plan.memory.hosts} if plan.memory else set()
        for node in self._hosts.get(plan.pod_uid, set()) - names:
            self._troubles.copied(plan, node)
        self._hosts[plan.pod_uid] = names
        if not names:
            return
        try:
            async with asyncio.timeout(COPY_SECONDS):
                if await self._copier.copy(plan, memory, [state.id]):
                    self._copied(plan, state)
        except TimeoutError:
            self._wanted.add(plan.pod_uid)
        except Damaged as error:
            log.error("STATE DAMAGED BEFORE ITS COPIES WERE MADE", job=plan.job, why=str(error))
            await memory.drop_if_damaged(state.id)
