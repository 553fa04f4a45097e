"""Updates of open pages: at once after a change, within the processor share of all pages."""

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
"""Seconds after which a page is updated without a change, because ages grow."""
BUILD_SECONDS = 30.0
"""Timeout for building a page, including the review of the user's permissions."""
FAILED_SECONDS = 5.0
"""Seconds until the retry of a failed update."""
LEAVE_SECONDS = 5.0
"""Seconds for a browser to leave the page after its session has ended."""
CONNECT_SECONDS = 60.0
"""Seconds that a built page waits for its browser to connect."""


def _exit_url(context: Context, location: str) -> str:
    if context.session_resolver.mode is AuthMode.TOKEN_REVIEW:
        return f"/login?over=1&back={quote(location, safe='')}"
    path, mark, query = location.partition("?")
    return quote(path) + mark + query


async def disconnect_page(client: Client) -> None:
    """Close a page whose session has ended, after its browser had time to leave it."""
    await asyncio.sleep(LEAVE_SECONDS)
    for socket, _ in list(core.sio.manager.get_participants("/", client.id)):
        await core.sio.disconnect(socket)
    if not client.is_deleted:
        client.delete()


class Page(Protocol):
    """A page that is kept up to date."""

    session: Session
    frame: Frame

    async def check_access(self) -> None:
        """Update the user's permissions."""
        ...

    def show(self) -> None:
        """Show the current data that the user may see."""
        ...


def _draw(context: Context, page: Page) -> None:
    # Nothing here awaits, so the measured time contains no work of other tasks.
    worked = thread_time()
    page.frame.refresh()
    page.show()
    context.throttle.record_cost(thread_time() - worked)


async def keep_updated(context: Context, page: Page) -> None:
    """Update the page that is being built, now and until it is closed or its session ends."""
    client, session, frame = ui.context.client, page.session, page.frame

    async def update() -> bool:
        with client:
            # Show the banner first: the review of permissions may get no answer.
            frame.refresh()
        try:
            await page.check_access()
            if session.over:
                return True
            with client:
                _draw(context, page)
        except Exception:
            # Catch every error: one unexpected object must not stop the page's updates silently.
            log.exception("page update failed", location=frame.location)
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
            # No subscription saw the changes while the browser loaded the page.
            subscription.notify()
            while not client.is_deleted and not session.over:
                since = await subscription.wait(TICK)
                if session.over:
                    return
                start = monotonic()
                if not await update():
                    await asyncio.sleep(FAILED_SECONDS)
                    continue
                if since is not None:
                    context.metrics.update_seconds.observe(monotonic() - since)
                interval = context.throttle.interval(len(context.feed))
                await asyncio.sleep(max(0.0, start + interval - monotonic()))

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
