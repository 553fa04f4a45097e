"""A cache of the Events of jobs, shared by all open pages."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from convoy_operator.gateway import Object

FRESH_SECONDS = 5.0
"""Seconds after which the cached Events of a job are requested again."""
MAX_JOBS = 256
"""Maximum number of jobs in the cache. If there are more, the job whose Events were requested the longest
time ago is dropped.
"""


class EventSource(Protocol):
    """Reads Events from the API server."""

    async def events(self, namespace: str, uid: str) -> list[Object]:
        """Return the newest Events of an object."""
        ...


class EventCache:
    """Requests the Events of a job once for all pages that show the job."""

    def __init__(self, source: EventSource, clock: Callable[[], float] = monotonic) -> None:
        self._source = source
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, asyncio.Task[list[Object]]]] = OrderedDict()

    async def events(self, namespace: str, uid: str) -> list[Object]:
        """Return the Events of a job.

        Raises errors.ApiError if the request fails.
        """
        at, task = self._known.get(uid, (float("-inf"), None))
        if task is None or (task.done() and self._clock() - at >= FRESH_SECONDS):
            task = asyncio.create_task(self._source.events(namespace, uid))
            self._known[uid] = (self._clock(), task)
            self._known.move_to_end(uid)
            while len(self._known) > MAX_JOBS:
                self._known.popitem(last=False)
        # Shield the request from the cancellation of one page, because other pages may wait for the same
        # request.
        return await asyncio.shield(task)
