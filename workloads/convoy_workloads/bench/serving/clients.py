"""Clients of a bench. Each client sends its next request as soon as its last response has ended.

The clients read bytes and look for the end of a response only, so that they need less processor time than
the server.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

END = b"0\r\n\r\n"
"""Last chunk of a chunked response."""
DONE = b"data: [DONE]\n\n"
OK = b"HTTP/1.1 200 "
DEADLINE_SECONDS = 600.0
"""Time limit for all requests of `run_clients`."""


class ClientError(Exception):
    """Raised if a response is not a complete stream."""


@dataclass
class Responses:
    """The responses of all clients."""

    seconds: float = 0.0
    """Time from the first request to the last response."""
    first_seconds: list[float] = field(default_factory=list)
    """Time to the first bytes of each response."""
    bodies: dict[int, bytes] = field(default_factory=dict)
    """The responses by number of the request."""


def request(port: int, body: dict[str, Any], path: str = "/v1/completions") -> bytes:
    """Return the bytes of a POST request."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


class _Client(asyncio.Protocol):
    """One client with one connection."""

    def __init__(self, requests: Sequence[tuple[int, bytes]], found: Responses, done: asyncio.Future[None]):
        self._requests = list(reversed(requests))
        self._found = found
        self._done = done
        self._transport: asyncio.Transport
        self._number = 0
        self._parts: list[bytes] = []
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        if not self._parts:
            self._found.first_seconds.append(time.perf_counter() - self._sent_at)
            if not data.startswith(OK):
                self._fail(f"a response is no stream: {data[:400]!r}")
                return
        self._parts.append(data)
        if data.endswith(END):
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the server has closed a connection: {self._parts[-1:]!r}")

    def _send(self) -> None:
        self._number, data = self._requests.pop()
        self._parts = []
        self._sent_at = time.perf_counter()
        self._transport.write(data)

    def _fail(self, why: str) -> None:
        if not self._done.done():
            self._done.set_exception(ClientError(why))

    def _end(self) -> None:
        body = b"".join(self._parts)
        if DONE not in body[-40:]:
            self._fail(f"a response is no complete stream: {body[:400]!r}")
            return
        self._found.bodies[self._number] = body
        if self._requests:
            self._send()
        elif not self._done.done():
            self._done.set_result(None)
            self._transport.close()


async def run_clients(port: int, requests: Sequence[bytes], clients: int) -> Responses:
    """Send the requests by that many clients and return the responses. Raises ClientError if a response is
    not a complete stream.
    """
    loop = asyncio.get_running_loop()
    found = Responses()
    numbered = list(enumerate(requests))
    started_at = time.perf_counter()
    ends = []
    for client in range(clients):
        done: asyncio.Future[None] = loop.create_future()
        own = numbered[client::clients]
        if own:
            await loop.create_connection(partial(_Client, own, found, done), "127.0.0.1", port)
            ends.append(done)
    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.gather(*ends)
    found.seconds = time.perf_counter() - started_at
    return found


def texts(found: Responses) -> list[str]:
    """Return the text of each response, in the order of the requests."""
    return [_text(found.bodies[number]) for number in sorted(found.bodies)]


def _text(body: bytes) -> str:
    """Return the text of a streamed completion with its chunked encoding."""
    _, _, rest = body.partition(b"\r\n\r\n")
    whole = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        whole, rest = whole + rest[:length], rest[length + 2 :]
    events = [part[6:] for part in whole.split(b"\n\n") if part.startswith(b"data: {")]
    return "".join(json.loads(one)["choices"][0]["text"] for one in events)
