"""GET over HTTP/1.1, for probes and metrics, on the event loop itself: a blocked loop answers no probe.

Any pod may connect. Probes must be answered all the same, or the kubelet restarts the container: connections
are bounded, in all and of one address, and one that has long been open gives way to a new one.
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
"""Bytes of a request's head."""
MAX_CLIENTS = 32
"""Connections at a time."""
MAX_CLIENTS_EACH = 8
"""Of one address: two probes of the kubelet, and those who scrape."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """To one request."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    kind: str = "text/plain; charset=utf-8"


Page = Callable[[], HttpResponse]
"""What a path is answered with: at once."""


def metrics(registry: CollectorRegistry, refresh: Callable[[], None] = lambda: None) -> Page:
    """All of a registry; `refresh` sets the gauges that are only counted when asked for."""

    def show() -> HttpResponse:
        refresh()
        return HttpResponse(generate_latest(registry), kind=CONTENT_TYPE_LATEST)

    return show


def healthy() -> HttpResponse:
    """The event loop turns."""
    return HttpResponse(b"ok\n")


def ready(missing: Callable[[], str]) -> Page:
    """Whether nothing is missing: else 503, and what is."""

    def show() -> HttpResponse:
        if reason := missing():
            return HttpResponse(f"not ready: {reason}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)
        return HttpResponse(b"ok\n")

    return show


class HttpServer:
    """One request a connection."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        """`pages`: by path."""
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._clients: ConnectionLimit[asyncio.StreamWriter] = ConnectionLimit(MAX_CLIENTS, MAX_CLIENTS_EACH)

    async def start(self, port: int, host: str = "") -> int:
        """Listens at `host`, at all addresses when it is empty; the port. OSError when it is taken."""
        if host:
            self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST)
        else:
            both = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if both else socket.AF_INET
            sock = socket.create_server(("", port), family=family, dualstack_ipv6=both)
            self._server = await asyncio.start_server(self._serve, sock=sock, limit=MAX_REQUEST)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stops listening."""
        if self._server:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = str((writer.get_extra_info("peername") or ("",))[0])
        # What was asked is answered at once, so that those who stay say nothing.
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
            # What was written is gone by now, or nobody reads it.
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
