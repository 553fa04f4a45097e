"""A middleware that rejects requests without a session and requests from other sites."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qs, quote, urlsplit

from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from convoy_operator.dashboard.auth.refusal import refusal
from convoy_operator.dashboard.auth.session_resolver import SessionResolver, host_of
from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.settings import AuthMode

SESSION = "convoy.session"
"""Key of the session in the scope of a request."""
ALIVE = "/healthz"
"""Path of the health check for load balancers. Every host name is allowed for this path, because load
balancers connect by address.
"""
_OPEN = re.compile(r"/login|/static/[^/]+")
_PAGE = re.compile(r"/(|cluster|(jobs|serving|experiments|cluster)/[^/]+/[^/]+|(nodes|spot)/[^/]+)")
_SOCKET = "/_nicegui_ws/"
_ENDPOINTS = re.compile(r"/_nicegui/[^/]+/.+|/_nicegui_ws/.*|/logout|/theme|/favicon\.ico")
_BACKGROUND = re.compile(r"/_nicegui/.*|/_nicegui_ws/.*|/favicon\.ico")
"""Paths that a page requests without an action of the user. Such requests do not keep the session alive."""
_SAFE = ("GET", "HEAD")


def headers_of(scope: Scope) -> Callable[[str], str]:
    """Return a function that returns the value of a header. The value is empty if the header is absent or
    repeated.
    """

    def header(name: str) -> str:
        wanted = name.encode()
        found = [value for key, value in scope["headers"] if key == wanted]
        return found[0].decode("latin-1") if len(found) == 1 else ""

    return header


def same_site(header: Callable[[str], str]) -> bool:
    """Return True if the Origin header names this host."""
    origin, host = header("origin"), header("host")
    return bool(origin) and bool(host) and urlsplit(origin).netloc == host


def is_page(path: str) -> bool:
    """Return True if the path is a page of the dashboard."""
    return _PAGE.fullmatch(path) is not None


def is_location(address: str) -> bool:
    """Return True for the path of a page with an optional query. Login and logout redirect only to such
    addresses.
    """
    path, _, query = address.partition("?")
    return is_page(path) and query.isascii() and query.isprintable()


def location_of(scope: Scope) -> str:
    """Return the request's path and query. A query with unprintable or non-ASCII characters is left out."""
    path, query = str(scope["path"]), scope.get("query_string", b"").decode("latin-1")
    return f"{path}?{query}" if query and query.isascii() and query.isprintable() else path


class RequestGuard:
    """An ASGI middleware that rejects requests from other sites and requests without a valid session."""

    def __init__(
        self,
        app: ASGIApp,
        resolver: SessionResolver,
        owner: Callable[[str], Session | None],
        full: Callable[[Session], bool] = lambda _: False,
        hosts: frozenset[str] = frozenset(),
    ) -> None:
        """`owner` returns the session of a page by the page's id. `full` returns True if the session may
        not open another page. `hosts` are the allowed host names; an empty set allows all.
        """
        self._app = app
        self._resolver = resolver
        self._owner = owner
        self._full = full
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        header, path = headers_of(scope), scope["path"]
        reading = scope["type"] == "http" and scope["method"] in _SAFE
        if reading and path == ALIVE:
            await PlainTextResponse("ok\n")(scope, receive, send)
            return
        if self._hosts and host_of(header("host"))[0] not in self._hosts:
            # This check stops DNS rebinding, in which another site points its own name at this address. In a
            # dashboard without logins, only the Host header reveals such a request.
            await _refuse(
                scope,
                receive,
                send,
                403,
                "this host name is not allowed; open the dashboard by one of its own names",
            )
            return
        if not reading and not same_site(header):
            await _refuse(scope, receive, send, 403, "this request came from another site")
            return
        if _OPEN.fullmatch(path):
            await self._app(scope, receive, send)
            return
        if not is_page(path) and not _ENDPOINTS.fullmatch(path):
            await _refuse(scope, receive, send, 404, "this page does not exist")
            return
        peer = scope["client"][0] if scope.get("client") else ""
        session = self._resolver.resolve(peer, header)
        if session is None:
            await self._reject(scope, receive, send)
            return
        if path.startswith(_SOCKET) and not self._owns(scope, session):
            await _refuse(scope, receive, send, 403, "this page belongs to another session")
            return
        if reading and is_page(path) and self._full(session):
            await _refuse(scope, receive, send, 503, "too many pages are open; close some and try again")
            return
        if not _BACKGROUND.fullmatch(path):
            self._resolver.sessions.use(session)
        scope[SESSION] = session
        await self._app(scope, receive, send)

    def _owns(self, scope: Scope, session: Session) -> bool:
        query = scope.get("query_string", b"").decode("latin-1")
        client_ids = parse_qs(query, keep_blank_values=True).get("client_id", ())
        if len(client_ids) != 1:
            return False
        owner = self._owner(client_ids[0])
        # A closed page has no owner. Let the request pass: NiceGUI then makes the browser reload the page.
        return owner is None or owner is session

    async def _reject(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._resolver.mode is AuthMode.TOKEN_REVIEW and scope["type"] == "http":
            if scope["method"] == "GET" and not scope["path"].startswith("/_nicegui"):
                location = location_of(scope)
                back = f"?back={quote(location, safe='')}" if location != "/" else ""
                await RedirectResponse(f"/login{back}", 303)(scope, receive, send)
                return
            await _refuse(scope, receive, send, 401, "log in first")
            return
        await _refuse(
            scope, receive, send, 403, "this request did not come from a trusted proxy, or it names no user"
        )


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, why: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": why})
        return
    await refusal(status, why, headers_of(scope)("accept"))(scope, receive, send)
