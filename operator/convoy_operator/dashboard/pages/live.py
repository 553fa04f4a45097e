"""Keeps an open page up to date: at once, and as often as all open pages together may cost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from time import monotonic, thread_time
from typing import Protocol
from urllib.parse import quote

import structlog
from nicegui import Client, background_tasks, core, ui

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
LEAVE_SECONDS = 5.0
"""For a browser to go where it is led when its session is over."""
CONNECT_SECONDS = 60.0
"""A browser that loaded the page and does not come back in this time is not waited for."""


def _exit_url(context: Context, location: str) -> str:
    if context.session_resolver.mode is AuthMode.TOKEN_REVIEW:
        return f"/login?over=1&back={quote(location, safe='')}"
    path, mark, query = location.partition("?")
    return quote(path) + mark + query


async def disconnect_page(client: Client) -> None:
    """Closes a page whose session is over, when its browser has had the time to leave it by itself."""
    await asyncio.sleep(LEAVE_SECONDS)
    for socket, _ in list(core.sio.manager.get_participants("/", client.id)):
        await core.sio.disconnect(socket)
    if not client.is_deleted:
        client.delete()


class Page(Protocol):
    """What is kept up to date."""

    session: Session
    frame: Frame

    async def check_access(self) -> None:
        """Asks what its reader may see."""
        ...

    def show(self) -> None:
        """Shows what there is now, of what may be seen."""
        ...


def _draw(context: Context, page: Page) -> None:
    # Nothing is waited for meanwhile: that would be the work of others.
    worked = thread_time()
    page.frame.refresh()
    page.show()
    context.throttle.record_cost(thread_time() - worked)


async def keep_updated(context: Context, page: Page) -> None:
    """Keeps the page under construction up to date: now, and until it is closed or its session is over."""
    client, session, frame = ui.context.client, page.session, page.frame

    async def update() -> bool:
        with client:
            # Before anything is asked for: an answer may be what does not come.
            frame.refresh()
        try:
            await page.check_access()
            if session.over:
                return True
            with client:
                _draw(context, page)
        except Exception:
            # One object that is not as thought must not leave a page standing still without a word.
            log.exception("a page could not be brought up to date", location=frame.location)
            context.metrics.failures.inc()
            with client:
                frame.set_failed(datetime.now(UTC))
            return False
        with client:
            frame.set_failed(None)
        context.metrics.updates.inc()
        return True

    async def run() -> None:
        try:
            await client.connected(timeout=CONNECT_SECONDS)
        except TimeoutError:
            return
        with context.feed.subscribe() as subscription:
            # What changed while the browser loaded the page rang nobody.
            subscription.notify()
            while not client.is_deleted and not session.over:
                since = await subscription.wait(TICK)
                if session.over:
                    return
                began = monotonic()
                if not await update():
                    await asyncio.sleep(FAILED_SECONDS)
                    continue
                if since is not None:
                    context.metrics.update_seconds.observe(monotonic() - since)
                interval = context.throttle.interval(len(context.feed))
                await asyncio.sleep(max(0.0, began + interval - monotonic()))

    def leave() -> None:
        with client:
            ui.navigate.to(_exit_url(context, frame.location))
        background_tasks.create(disconnect_page(client), name=f"cut {client.id}")

    await update()
    session.on_end.append(leave)
    task = background_tasks.create(run(), name=f"live {client.id}")

    def close() -> None:
        task.cancel()
        if leave in session.on_end:
            session.on_end.remove(leave)

    client.on_delete(close)
