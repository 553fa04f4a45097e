"""Requests the Events of the job that a page shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from nicegui import background_tasks, ui

from convoy_operator import errors
from convoy_operator.dashboard.context import Context
from convoy_operator.gateway import Object

EVENTS_SECONDS = 5.0
"""Seconds between two requests for the job's Events."""


class JobEvents:
    """The newest Events of one job."""

    def __init__(self, context: Context, namespace: str, loaded: Callable[[str], None]) -> None:
        """`loaded` is called with the job's uid after its Events have arrived, unless the page is closed."""
        self._context = context
        self._namespace = namespace
        self._loaded = loaded
        self._client = ui.context.client
        self._known: tuple[str, list[Object]] = ("", [])
        """A job's uid and the Events of the job. A later job of the same name has a different uid and other
        Events.
        """
        self._requested_at = float("-inf")
        self._task: asyncio.Task[None] | None = None

    def of(self, uid: str) -> list[Object]:
        """Return the Events of the job with this uid; empty if they have not arrived yet."""
        known, events = self._known
        return events if known == uid else []

    def refresh(self, uid: str) -> None:
        """Request the job's Events in the background, so that a slow response does not delay the page."""
        loading = self._task is not None and not self._task.done()
        if loading or time.monotonic() - self._requested_at < EVENTS_SECONDS:
            return
        self._requested_at = time.monotonic()
        self._task = background_tasks.create(self._load(uid), name="events")

    async def _load(self, uid: str) -> None:
        try:
            self._known = uid, await self._context.event_cache.events(self._namespace, uid)
        except errors.ApiError:
            return  # Keep the Events that are shown. The banner already reports the outage.
        if not self._client.is_deleted:
            with self._client:
                self._loaded(uid)
