"""Stands before everything: no request without a session, none that another site makes."""

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
"""Where a load balancer asks of this port whether it is alive: by an address, so under no name."""
_OPEN = re.compile(r"/login|/static/[^/]+")
_PAGE = re.compile(r"/(jobs/[^/]+/[^/]+|nodes/[^/]+)?")
_SOCKET = "/_nicegui_ws/"
_ENDPOINTS = re.compile(r"/_nicegui/[^/]+/.+|/_nicegui_ws/.*|/logout|/theme|/favicon\.ico")
_BACKGROUND = re.compile(r"/_nicegui/.*|/_nicegui_ws/.*|/favicon\.ico")
"""What pages ask for without their reader."""
_SAFE = ("GET", "HEAD")


def headers_of(scope: Scope) -> Callable[[str], str]:
    """Looks a header up; empty when there is none, or more than one."""

    def header(name: str) -> str:
        wanted = name.encode()
        found = [value for key, value in scope["headers"] if key == wanted]
        return found[0].decode("latin-1") if len(found) == 1 else ""

    return header


def same_site(header: Callable[[str], str]) -> bool:
    """Whether a request that changes something, or a websocket, comes from a page of this very host."""
    origin, host = header("origin"), header("host")
    return bool(origin) and bool(host) and urlsplit(origin).netloc == host


def is_page(path: str) -> bool:
    """Whether it is the path of one of our pages."""
    return _PAGE.fullmatch(path) is not None


def is_location(address: str) -> bool:
    """Whether it is a page of ours, perhaps with a query: what may be gone back to, after a form."""
    path, _, query = address.partition("?")
    return is_page(path) and query.isascii() and query.isprintable()


def location_of(scope: Scope) -> str:
    """Path and query of a request; without a query that no form could lead back to."""
    path, query = str(scope["path"]), scope.get("query_string", b"").decode("latin-1")
    return f"{path}?{query}" if query and query.isascii() and query.isprintable() else path


class RequestGuard:
    """ASGI."""

    def __init__(
        self,
        app: ASGIApp,
        resolver: SessionResolver,
        owner: Callable[[str], Session | None],
        full: Callable[[Session], bool] = lambda _: False,
        hosts: frozenset[str] = frozenset(),
    ) -> None:
        """`owner`: whose a page is, by the id that its socket names; `full`: no more pages of a session fit;
        `hosts`: names by which it may be reached, any when empty.
        """
        self._app = app
        self._resolver = resolver
        self._owner = owner
        self._full = full
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        header, path = headers_of(scope), scope["path"]
        reading = scope["type"] == "http" and scope["method"] in _SAFE
        if reading and path == ALIVE:
            await PlainTextResponse("ok\n")(scope, receive, send)
            return
        if self._hosts and host_of(header("host"))[0] not in self._hosts:
            # Any site can have its own name lead here: where nobody logs in, the name is all that tells.
            await _refuse(scope, receive, send, 403, "this dashboard is not reached by that name")
            return
        if not reading and not same_site(header):
            await _refuse(scope, receive, send, 403, "this was asked for by another site")
            return
        if _OPEN.fullmatch(path):
            await self._app(scope, receive, send)
            return
        if not is_page(path) and not _ENDPOINTS.fullmatch(path):
            await _refuse(scope, receive, send, 404, "there is no such page")
            return
        peer = scope["client"][0] if scope.get("client") else ""
        session = self._resolver.resolve(peer, header)
        if session is None:
            await self._reject(scope, receive, send)
            return
        if path.startswith(_SOCKET) and not self._owns(scope, session):
            await _refuse(scope, receive, send, 403, "this page is of another session")
            return
        if reading and is_page(path) and self._full(session):
            await _refuse(scope, receive, send, 503, "too many pages are open: close some, and try again")
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
        # A page that is gone has no owner; NiceGUI then has its browser load it anew.
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
        await _refuse(scope, receive, send, 403, "not from a proxy that is believed, or without a user")


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, why: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": why})
        return
    await refusal(status, why, headers_of(scope)("accept"))(scope, receive, send)
