"""A check that each websocket sends events only for pages of its own session."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from convoy_operator.dashboard.auth.request_guard import SESSION
from convoy_operator.dashboard.auth.sessions import Session

log = structlog.get_logger(__name__)

EVENTS = ("handshake", "event", "javascript_response", "ack", "log")
"""Names of the events that NiceGUI's pages send. Each event contains the id of its page."""
Handler = Callable[[str, dict[str, Any]], Any]


def bind_events(sio: Any, owner: Callable[[str], Session | None]) -> None:
    """Reject events for pages of another session. NiceGUI alone would only check that the page's id exists.

    `sio` is a socketio.AsyncServer. `owner` returns the session of a page by the page's id.
    """
    for name in EVENTS:
        sio.on(name, _bound(sio, owner, sio.handlers["/"][name]))


def _bound(
    sio: Any, owner: Callable[[str], Session | None], handler: Handler
) -> Callable[[str, dict[str, Any]], Awaitable[Any]]:
    async def handle(socket: str, message: dict[str, Any]) -> Any:
        scope = (sio.get_environ(socket) or {}).get("asgi.scope") or {}
        session, page = scope.get(SESSION), owner(str(message.get("client_id")))
        if session is None or session.over or (page is not None and page is not session):
            log.warning("rejected a websocket event for a page of another session")
            return False
        found = handler(socket, message)
        return await found if inspect.isawaitable(found) else found

    return handle
