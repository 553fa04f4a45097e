"""A GET-only HTTP/1.1 server for health probes and metrics. It runs on the event loop, so a blocked loop
fails the probes.

Any pod may connect, and the kubelet restarts the container if its probes get no response. The server
therefore limits connections, in total and per address. At a limit it closes an old connection and accepts
the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from convoy_agents.wire.connection_limit import ConnectionLimit

REQUEST_SECONDS = 5.0
MAX_REQUEST = 16 * 1024
"""Maximum bytes of a request's line and headers."""
MAX_CLIENTS = 32
"""Maximum number of open connections."""
MAX_CLIENTS_EACH = 8
"""Maximum number of open connections per address. It suffices for two probes of the kubelet and some
metrics scrapers.
"""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response to one request."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    kind: str = "text/plain; charset=utf-8"


Page = Callable[[], HttpResponse]
"""Returns the response for one path. It must not block."""


def metrics(registry: CollectorRegistry, refresh: Callable[[], None] = lambda: None) -> Page:
    """Return a page with all metrics of a registry. The page calls `refresh` first, which updates gauges
    that are computed on demand.
    """

    def show() -> HttpResponse:
        refresh()
        return HttpResponse(generate_latest(registry), kind=CONTENT_TYPE_LATEST)

    return show


def healthy() -> HttpResponse:
    """Respond with 200. The response proves that the event loop is running."""
    return HttpResponse(b"ok\n")


def ready(missing: Callable[[], str]) -> Page:
    """Return a page for the readiness probe. It responds with 200 if `missing` returns an empty text, else
    with 503 and the text.
    """

    def show() -> HttpResponse:
        if reason := missing():
            return HttpResponse(f"not ready: {reason}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)
        return HttpResponse(b"ok\n")

    return show


class HttpServer:
    """An HTTP server that serves one request per connection."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        """Store the pages by path."""
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._clients: ConnectionLimit[asyncio.StreamWriter] = ConnectionLimit(MAX_CLIENTS, MAX_CLIENTS_EACH)

    async def start(self, port: int, host: str = "") -> int:
        """Listen on `host`, or on all addresses if `host` is empty. Return the port. Raises OSError if the
        port is in use.
        """
        if host:
            self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST)
        else:
            both = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if both else socket.AF_INET
            sock = socket.create_server(("", port), family=family, dualstack_ipv6=both)
            self._server = await asyncio.start_server(self._serve, sock=sock, limit=MAX_REQUEST)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop accepting connections."""
        if self._server:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = str((writer.get_extra_info("peername") or ("",))[0])
        # The server responds to each request without delay. So the oldest connection is idle and may be
        # closed.
        if (out := self._clients.add(writer, address)) is not None:
            out.transport.abort()
        try:
            with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError, ValueError):
                async with asyncio.timeout(REQUEST_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._respond(head.split(b"\r\n", 1)[0].decode("latin-1")))
                    writer.close()
                    await writer.wait_closed()
        finally:
            self._clients.remove(writer)
            # The response has been sent, or the client has not read it in time. Close the connection in both
            # cases.
            writer.transport.abort()

    def _respond(self, line: str) -> bytes:
        method, _, rest = line.partition(" ")
        page = self._pages.get(rest.split(" ")[0].split("?")[0])
        if method != "GET":
            return _encoded(HttpResponse(b"GET only\n", HTTPStatus.METHOD_NOT_ALLOWED))
        if page is None:
            return _encoded(HttpResponse(f"{', '.join(self._pages)}\n".encode(), HTTPStatus.NOT_FOUND))
        return _encoded(page())


def _encoded(response: HttpResponse) -> bytes:
    head = (
        f"HTTP/1.1 {response.status.value} {response.status.phrase}",
        f"Content-Type: {response.kind}",
        f"Content-Length: {len(response.body)}",
        "Connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + response.body
