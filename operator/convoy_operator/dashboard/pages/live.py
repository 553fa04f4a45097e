"""Keeps an open page up to date: at once, and as often as all open pages together may cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from time import monotonic, thread_time
from urllib.parse import quote

import structlog
from nicegui import background_tasks, ui

from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.pages.frame import Frame
from convoy_operator.dashboard.settings import AuthMode

log = structlog.get_logger(__name__)

TICK = 5.0
"""Without any change a page is brought up to date after so long: ages grow."""
BUILD_SECONDS = 30.0
"""For a page to be made: its reader's rights have to be asked for."""
FAILED_SECONDS = 5.0
"""To the next try, after an update that failed."""
CONNECT_SECONDS = 60.0
"""A browser that loaded the page and does not come back in this time is not waited for."""


async def keep(
    context: Context, session: Session, frame: Frame, refresh: Callable[[], Awaitable[None]]
) -> None:
    """Calls `refresh` for the page under construction: now, and until it is closed or its session is over."""
    client, place = ui.context.client, ui.context.client.request.url.path

    async def update() -> bool:
        worked = thread_time()
        try:
            with client:
                await refresh()
        except Exception:
            # One object that is not as thought must not leave a page standing still without a word.
            log.exception("a page could not be brought up to date", place=place)
            context.metrics.failures.inc()
            with client:
                frame.failed(datetime.now(UTC))
            return False
        with client:
            frame.failed(None)
        context.pace.spent(thread_time() - worked)
        context.metrics.updates.inc()
        return True

    async def run() -> None:
        try:
            await client.connected(timeout=CONNECT_SECONDS)
        except TimeoutError:
            return
        with context.feed.bell() as bell:
            # What changed while the browser loaded the page rang nobody.
            bell.ring()
            while not client.is_deleted and not session.over:
                since = await bell.wait(TICK)
                began = monotonic()
                if not await update():
                    await asyncio.sleep(FAILED_SECONDS)
                    continue
                if since is not None:
                    context.metrics.update_seconds.observe(monotonic() - since)
                spacing = context.pace.spacing(len(context.feed))
                await asyncio.sleep(max(0.0, began + spacing - monotonic()))

    def leave() -> None:
        with client:
            over = context.door.mode is AuthMode.TOKEN_REVIEW
            ui.navigate.to(f"/login?over=1&back={quote(place, safe='')}" if over else quote(place))

    await update()
    session.on_end.append(leave)
    task = background_tasks.create(run(), name=f"live {client.id}")

    def close() -> None:
        task.cancel()
        if leave in session.on_end:
            session.on_end.remove(leave)

    client.on_delete(close)
