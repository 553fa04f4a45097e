"""Keeps open pages up to date. A page is updated soon after a change; the update throttle limits the rate."""

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
"""Seconds between two updates of a page if nothing changes. These updates let the shown ages grow."""
BUILD_SECONDS = 30.0
"""Timeout for building a page, including the review of the user's permissions."""
FAILED_SECONDS = 5.0
"""Seconds between a failed update and its retry."""
LEAVE_SECONDS = 5.0
"""Seconds that a browser has to leave the page after the end of its session."""
CONNECT_SECONDS = 60.0
"""Seconds that a page waits for its browser to connect after the page was built."""


def _exit_url(context: Context, location: str) -> str:
    if context.session_resolver.mode is AuthMode.TOKEN_REVIEW:
        return f"/login?over=1&back={quote(location, safe='')}"
    path, mark, query = location.partition("?")
    return quote(path) + mark + query


async def disconnect_page(client: Client) -> None:
    """Close a page whose session has ended. The browser gets LEAVE_SECONDS to leave the page first."""
    await asyncio.sleep(LEAVE_SECONDS)
    for socket, _ in list(core.sio.manager.get_participants("/", client.id)):
        await core.sio.disconnect(socket)
    if not client.is_deleted:
        client.delete()


class Page(Protocol):
    """A page that `keep_updated` keeps up to date."""

    session: Session
    frame: Frame

    async def check_access(self) -> None:
        """Check again what the user may see."""
        ...

    def show(self) -> None:
        """Show the current data, as far as the user may see it."""
        ...


def _draw(context: Context, page: Page) -> None:
    # This function must not await, so that the measured time contains no work of other tasks.
    worked = thread_time()
    page.frame.refresh()
    page.show()
    context.throttle.record_cost(thread_time() - worked)


async def keep_updated(context: Context, page: Page) -> None:
    """Update the page that is being built. Update it again until it is closed or its session ends."""
    client, session, frame = ui.context.client, page.session, page.frame

    async def update() -> bool:
        with client:
            # Update the banner first, because the review of permissions may take long.
            frame.refresh()
        try:
            await page.check_access()
            if session.over:
                return True
            with client:
                _draw(context, page)
        except Exception:
            # Catch every error and show it. Otherwise one unexpected object would end the page's updates, and
            # the user would not notice.
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
            # Update once more at the start, to show the changes that happened before the subscription.
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
