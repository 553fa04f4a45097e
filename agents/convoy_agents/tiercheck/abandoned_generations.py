"""Generations that a rank of this node could not save. This agent remembers them and reports each one to
the agent of the job's slot 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from convoy_agents.pods.assignment import Assignment
from convoy_controllers.checkpoint.generation import Generation

MAX_ABANDONED = 8
"""Maximum number of abandoned generations to remember for one pod. Each may have a running notification."""

log = structlog.get_logger()


class AbandonedGenerations:
    """The abandoned generations of the pods of one node."""

    def __init__(self, notify: Callable[[Assignment, Generation], Coroutine[Any, Any, None]]) -> None:
        """`notify`: reports a generation to the agent of slot 0. It retries until a deadline that it sets
        itself.
        """
        self._notify = notify
        self._notifying: dict[str, dict[Generation, asyncio.Task[None]]] = {}
        """Notification tasks by pod uid and generation, the newest last. A finished task stays here,
        because its key marks the generation as abandoned.
        """

    def add(self, plan: Assignment, generation: Generation) -> None:
        """Remember a generation that a rank of the pod could not save, and start to report it. If the pod
        then has more than MAX_ABANDONED generations, drop the oldest.
        """
        mine = self._notifying.setdefault(plan.pod_uid, {})
        before = mine.pop(generation, None)
        if before is None or before.done():
            before = asyncio.create_task(self._notify(plan, generation))
            before.add_done_callback(_ended)
        mine[generation] = before
        while len(mine) > MAX_ABANDONED:
            mine.pop(next(iter(mine))).cancel()

    def holds(self, uid: str, generation: Generation) -> bool:
        """Return True if a rank of the pod could not save this generation."""
        return generation in self._notifying.get(uid, ())

    def drop_pod(self, uid: str) -> None:
        """Drop the generations of a pod that left the node, and cancel their notifications."""
        for task in self._notifying.pop(uid, {}).values():
            task.cancel()

    async def close(self) -> None:
        """Cancel all notifications."""
        tasks = [task for mine in self._notifying.values() for task in mine.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("the agent of slot 0 was not notified of an abandoned generation", exc_info=error)
