"""How many connections to the pages are open at a time.

Whoever reaches the port may open some. Each is a descriptor of the process: when all are taken, the probes
get no answer either, and the kubelet restarts the dashboard. One that has said nothing for long gives way to
a new one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from convoy_agents.wire.connection_limit import ConnectionLimit
from convoy_operator.dashboard.auth.request_guard import SESSION
from convoy_operator.dashboard.auth.sessions import Session

MOST = 256
"""Those that are no socket of a page: idle, or with a request. A browser has six."""
CONNECTION = "convoy.connection"
"""Key of the transport in the state of a request."""


class Connections:
    """Of one server: ASGI, before everything, and `protocol()`, which the server has to use."""

    def __init__(self, app: ASGIApp, sockets: int) -> None:
        """`sockets`: the most websockets of pages."""
        self._app = app
        self._others: ConnectionLimit[asyncio.Transport] = ConnectionLimit(MOST)
        self._sockets: ConnectionLimit[asyncio.Transport] = ConnectionLimit(sockets)

    def protocol(self) -> type[asyncio.Protocol]:
        """Of a connection."""
        connections = self

        class NotedProtocol(HttpToolsProtocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                connections._opened(transport)
                # What a request brings with it, and a websocket after it.
                self.app_state = {**self.app_state, CONNECTION: transport}
                super().connection_made(transport)

        return NotedProtocol

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        transport: Any = (scope.get("state") or {}).get(CONNECTION)
        if transport is not None and scope["type"] == "http":
            # It is not long since this one has said something, whenever it was opened.
            self._add(self._others, transport, _address(transport))

        async def send_noted(message: Message) -> None:
            if message["type"] == "websocket.accept" and transport is not None:
                self._accepted(transport, scope.get(SESSION))
            await send(message)

        await self._app(scope, receive, send_noted if scope["type"] == "websocket" else send)

    def _opened(self, transport: asyncio.Transport) -> None:
        for limit in (self._others, self._sockets):
            for one in [one for one in limit if _is_closed(one)]:
                limit.remove(one)
        self._add(self._others, transport, _address(transport))

    def _accepted(self, transport: asyncio.Transport, session: object) -> None:
        self._others.remove(transport)
        holder = session.identity.user if isinstance(session, Session) else ""
        self._add(self._sockets, transport, holder)

    @staticmethod
    def _add(limit: ConnectionLimit[asyncio.Transport], transport: asyncio.Transport, holder: str) -> None:
        if transport.is_closing():
            return  # it has given way since it asked
        dropped = limit.add(transport, holder)
        if dropped is not None:
            dropped.abort()


def _address(transport: asyncio.Transport) -> str:
    return str((transport.get_extra_info("peername") or ("",))[0])


def _is_closed(transport: asyncio.Transport) -> bool:
    """Whether its descriptor is free again: one that closes keeps it while nobody reads what is left."""
    sock = transport.get_extra_info("socket")
    return sock is None or sock.fileno() < 0
