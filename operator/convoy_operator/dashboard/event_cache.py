"""The Events of jobs, as all open pages share them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from convoy_operator.gateway import Object

FRESH_SECONDS = 5.0
"""For so long an answer is given again."""
MOST_JOBS = 256
"""Whose Events are kept; the one that was asked for longest ago makes room."""


class EventSource(Protocol):
    """Who knows them."""

    async def events(self, namespace: str, uid: str) -> list[Object]:
        """The newest Events of one object."""
        ...


class EventCache:
    """However many pages show a job, its Events are asked for once."""

    def __init__(self, source: EventSource, clock: Callable[[], float] = monotonic) -> None:
        self._source = source
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, asyncio.Task[list[Object]]]] = OrderedDict()

    async def events(self, namespace: str, uid: str) -> list[Object]:
        """The Events of a job. Raises errors.ApiError."""
        at, task = self._known.get(uid, (float("-inf"), None))
        if task is None or (task.done() and self._clock() - at >= FRESH_SECONDS):
            task = asyncio.create_task(self._source.events(namespace, uid))
            self._known[uid] = (self._clock(), task)
            self._known.move_to_end(uid)
            while len(self._known) > MOST_JOBS:
                self._known.popitem(last=False)
        # A page that is closed ends its own waiting, not that of the others.
        return await asyncio.shield(task)
