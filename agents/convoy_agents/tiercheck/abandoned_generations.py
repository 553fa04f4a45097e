"""Generations that a rank could not save: slot 0's agent hears of each, and they are remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from convoy_agents.pods.assignment import Assignment
from convoy_controllers.checkpoint.generation import Generation

MAX_ABANDONED = 8
"""Generations of one pod that are remembered, and told of at once."""

log = structlog.get_logger()


class AbandonedGenerations:
    """Of the pods of one node."""

    def __init__(self, notify: Callable[[Assignment, Generation], Coroutine[Any, Any, None]]) -> None:
        """`notify`: tries to notify slot 0's agent, for as long as it has patience."""
        self._notify = notify
        self._notifying: dict[str, dict[Generation, asyncio.Task[None]]] = {}
        """By pod, the newest last; a task that has ended is what remembers its generation."""

    def add(self, plan: Assignment, generation: Generation) -> None:
        """A rank of the pod could not save it. Of more than `MAX_ABANDONED` the oldest is forgotten."""
        mine = self._notifying.setdefault(plan.pod_uid, {})
        before = mine.pop(generation, None)
        if before is None or before.done():
            before = asyncio.create_task(self._notify(plan, generation))
            before.add_done_callback(_ended)
        mine[generation] = before
        while len(mine) > MAX_ABANDONED:
            mine.pop(next(iter(mine))).cancel()

    def holds(self, uid: str, generation: Generation) -> bool:
        """Whether a rank of the pod could not save it."""
        return generation in self._notifying.get(uid, ())

    def drop_pod(self, uid: str) -> None:
        """The pod left."""
        for task in self._notifying.pop(uid, {}).values():
            task.cancel()

    async def close(self) -> None:
        """Ends every task."""
        tasks = [task for mine in self._notifying.values() for task in mine.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("abandoned generation not told of", exc_info=error)
