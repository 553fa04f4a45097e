"""The HTTP protocol of the server. It bounds what a client may use before the application sees its request,
and declines other protocols that a client offers.

The application bounds the body. uvicorn and its parser bound neither the size of a header nor the time until
it is complete.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from convoy_workloads.serving.asgi import CLOSE, Receive, Scope, Send, respond
from convoy_workloads.serving.declined_upgrade import DecliningParser

HEADER_BYTES = 64 * 1024
"""Maximum number of bytes of a request's URL, headers and trailers, and of one part that is not complete."""
HEADER_SECONDS = 30.0
"""Seconds from a connection's begin, or from the first byte of a request, until the headers are complete."""
CONNECTIONS = 4096
"""Number of connections of a server. A further one gets status 503 for its first request, and ends."""
ALL_CONNECTIONS = 16_384
"""Number of connections from which on a further one is closed at once."""
EXCESS_HEADER_BYTES = 8 * 1024
"""`HEADER_BYTES` of a connection beyond `CONNECTIONS`."""
_BUSY = b"This server has too many connections. Keep connections open, or send the request again later.\n"
_TOO_LONG = f"The URL and the headers must have at most {HEADER_BYTES} bytes."


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond that the server has too many connections, and end the connection."""
    await respond(send, 503, [(b"retry-after", b"1"), CLOSE], _BUSY, b"text/plain")


class HeadersTooLong(Exception):
    """Raised in the parser's callbacks. uvicorn then responds with status 400 and closes the connection."""


class BoundedHttp(HttpToolsProtocol):
    """A connection whose headers have a limit of size and of time."""

    _header_bytes = 0
    """Bytes of the URL, headers and trailers of the present request."""
    _pending_bytes = 0
    """Bytes received since the parser has completed a part, such as a header."""
    _header_limit = HEADER_BYTES
    _timer: asyncio.TimerHandle | None = None
    parser: DecliningParser  # type: ignore[assignment]

    def __init__(self, *args: Any, **more: Any) -> None:
        """Take uvicorn's arguments."""
        super().__init__(*args, **more)
        self.parser = DecliningParser(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time for the headers of the first request. Refuse a connection too many."""
        super().connection_made(transport)
        if len(self.connections) > ALL_CONNECTIONS:
            transport.abort()
            return
        if len(self.connections) > CONNECTIONS:
            self.app = refuse
            self._header_limit = EXCESS_HEADER_BYTES
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        self._end_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes of the client. Refuse a part that does not end."""
        self._pending_bytes += len(data)
        super().data_received(data)
        if self._pending_bytes > self._header_limit and not self.transport.is_closing():
            self.send_400_response(_TOO_LONG)

    def on_message_begin(self) -> None:
        """Begin a request, and start the time for its headers."""
        if self.parser.replaying:
            return
        self._header_bytes = self._pending_bytes = 0
        self._await_headers()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Add a part of the URL."""
        if self.parser.replaying:
            return
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header or a trailer."""
        if self.parser.replaying:
            return
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Let the application handle the request."""
        if self.parser.replaying:
            return
        self._end_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        self._pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request's body."""
        if self.parser.should_upgrade():
            return
        self._pending_bytes = 0
        super().on_message_complete()

    def _count(self, size: int) -> None:
        self._pending_bytes = 0
        self._header_bytes += size
        if self._header_bytes > self._header_limit:
            raise HeadersTooLong

    def _await_headers(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
