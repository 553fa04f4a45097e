"""The limit of the open connections to the dashboard.

Anyone who can reach the port can open connections, and each connection uses a file descriptor of the
process. Without free file descriptors the probes fail, and the kubelet restarts the dashboard. At the
limit, one connection is closed: the longest idle one of the address or user with the most connections.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from convoy_agents.wire.connection_limit import ConnectionLimit
from convoy_operator.dashboard.auth.request_guard import SESSION
from convoy_operator.dashboard.auth.sessions import Session

MAX_CONNECTIONS = 256
"""Maximum number of connections that are not websockets of pages. A browser opens up to six."""
CONNECTION = "convoy.connection"
"""Key of the connection's transport in the state of a request."""


class Connections:
    """Limits the connections of a server. It is the server's outermost ASGI application and provides its
    protocol class.
    """

    def __init__(self, app: ASGIApp, sockets: int) -> None:
        """`sockets` is the maximum number of websockets."""
        self._app = app
        self._others: ConnectionLimit[asyncio.Transport] = ConnectionLimit(MAX_CONNECTIONS)
        self._sockets: ConnectionLimit[asyncio.Transport] = ConnectionLimit(sockets)

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the protocol class that the server must use."""
        connections = self

        class NotedProtocol(HttpToolsProtocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                connections._opened(transport)
                # The server copies `app_state` into the state of each HTTP and websocket request on this
                # connection.
                self.app_state = {**self.app_state, CONNECTION: transport}
                super().connection_made(transport)

        return NotedProtocol

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        transport: Any = (scope.get("state") or {}).get(CONNECTION)
        if transport is not None and scope["type"] == "http":
            # Move the connection to the end of the order of use: a request is using it, so it must be closed
            # last.
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
            return  # The limit has already closed this connection.
        dropped = limit.add(transport, holder)
        if dropped is not None:
            dropped.abort()


def _address(transport: asyncio.Transport) -> str:
    return str((transport.get_extra_info("peername") or ("",))[0])


def _is_closed(transport: asyncio.Transport) -> bool:
    """Return True if the connection no longer uses a file descriptor. A connection that is being closed
    keeps its descriptor until the peer has read the remaining data.
    """
    sock = transport.get_extra_info("socket")
    return sock is None or sock.fileno() < 0
