"""GET /metrics, /healthz and /readyz, on the event loop itself: a blocked loop answers no probe."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

REQUEST_SECONDS = 5.0
MAX_REQUEST = 16 * 1024
"""Bytes of a request's head."""
MAX_CLIENTS = 32


class HealthServer:
    """HTTP/1.1, one request a connection. `not_ready` names what is missing, or nothing."""

    def __init__(self, registry: CollectorRegistry, not_ready: Callable[[], str]) -> None:
        self._registry = registry
        self._not_ready = not_ready
        self._server: asyncio.Server | None = None
        self._clients = 0

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
        self._clients += 1
        try:
            if self._clients <= MAX_CLIENTS:
                with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError, ValueError):
                    async with asyncio.timeout(REQUEST_SECONDS):
                        head = await reader.readuntil(b"\r\n\r\n")
                        writer.write(self._answer(head.split(b"\r\n", 1)[0].decode("latin-1")))
                        await writer.drain()
        finally:
            self._clients -= 1
            writer.close()

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
