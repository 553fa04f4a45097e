"""GET /metrics, /healthz and /readyz, on the event loop itself: a blocked loop answers no probe.

Any pod may connect. Probes must be answered all the same, or the kubelet restarts the agent: connections are
bounded, in all and of one address, and one that has long been open gives way to a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

REQUEST_SECONDS = 5.0
MAX_REQUEST = 16 * 1024
"""Bytes of a request's head."""
MAX_CLIENTS = 32
"""Connections at a time."""
MAX_CLIENTS_EACH = 8
"""Of one address: two probes of the kubelet, and those who scrape."""


class HealthServer:
    """HTTP/1.1, one request a connection. `not_ready` names what is missing, or nothing."""

    def __init__(self, registry: CollectorRegistry, not_ready: Callable[[], str]) -> None:
        self._registry = registry
        self._not_ready = not_ready
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.StreamWriter, str] = {}
        """Their addresses; the connection that is open longest comes first."""

    async def start(self, port: int) -> int:
        """Listens on all addresses; the port. OSError when it is taken."""
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
        self._make_room(address)
        self._clients[writer] = address
        try:
            with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError, ValueError):
                async with asyncio.timeout(REQUEST_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(head.split(b"\r\n", 1)[0].decode("latin-1")))
                    writer.close()
                    await writer.wait_closed()
        finally:
            self._clients.pop(writer, None)
            # What was written is gone by now, or nobody reads it.
            writer.transport.abort()

    def _make_room(self, address: str) -> None:
        """Ends the oldest connection of an address that has its share, or, when all places are taken, of the
        one that has most of them: what was asked is answered at once, so that those who stay say nothing."""
        held = Counter(self._clients.values())
        if held[address] < MAX_CLIENTS_EACH:
            if len(self._clients) < MAX_CLIENTS:
                return
            address = held.most_common(1)[0][0]
        oldest = next(writer for writer, whose in self._clients.items() if whose == address)
        del self._clients[oldest]
        oldest.transport.abort()

    def _answer(self, line: str) -> bytes:
        method, _, rest = line.partition(" ")
        path = rest.split(" ")[0].split("?")[0]
        if method != "GET":
            return _response("405 Method Not Allowed", b"GET only\n")
        if path == "/metrics":
            return _response("200 OK", generate_latest(self._registry), CONTENT_TYPE_LATEST)
        if path == "/healthz":
            return _response("200 OK", b"ok\n")
        if path == "/readyz":
            missing = self._not_ready()
            return _response(
                "503 Service Unavailable" if missing else "200 OK", f"{missing or 'ok'}\n".encode()
            )
        return _response("404 Not Found", b"/metrics, /healthz or /readyz\n")


def _response(status: str, body: bytes, kind: str = "text/plain; charset=utf-8") -> bytes:
    head = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + body
