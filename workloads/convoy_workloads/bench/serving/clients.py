"""Clients of a bench. Each client sends its next request as soon as its last response has ended.

The clients read bytes and look for the end of a response only, so that they need less processor time than
the server.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
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
    """Raised if a response is incomplete or has another status than 200."""


@dataclass
class Responses:
    """The responses of all clients."""

    seconds: float = 0.0
    """Seconds from the first request to the last response."""
    first_seconds: list[float] = field(default_factory=list)
    """Time to the first bytes of each response."""
    bodies: dict[int, bytes] = field(default_factory=dict)
    """The responses by number of the request."""


def request(port: int, body: dict[str, Any], path: str = "/v1/completions") -> bytes:
    """Return the bytes of a POST request."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def is_stream(parts: Sequence[bytes]) -> bool:
    """Return True if the parts of a response end a stream of events. Raises ClientError if it has no end."""
    if not parts[-1].endswith(END):
        return False
    body = b"".join(parts)
    if DONE not in body[-40:]:
        raise ClientError(f"a response is no complete stream: {body[:400]!r}")
    return True


def is_whole(parts: Sequence[bytes]) -> bool:
    """Return True if the parts of a response have the length in its header."""
    head, gap, content = b"".join(parts).partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return bool(gap) and len(content) >= int(length)


class _Client(asyncio.Protocol):
    """One client with one connection."""

    def __init__(
        self,
        requests: Sequence[tuple[int, bytes]],
        found: Responses,
        done: asyncio.Future[None],
        ends: Callable[[Sequence[bytes]], bool],
    ):
        self._requests = list(reversed(requests))
        self._ends = ends
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
                self._fail(f"a response has another status than 200: {data[:400]!r}")
                return
        self._parts.append(data)
        try:
            if self._ends(self._parts):
                self._end()
        except ClientError as error:
            self._fail(str(error))

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
        self._found.bodies[self._number] = b"".join(self._parts)
        if self._requests:
            self._send()
        elif not self._done.done():
            self._done.set_result(None)
            self._transport.close()


async def run_clients(
    port: int,
    requests: Sequence[bytes],
    clients: int,
    ends: Callable[[Sequence[bytes]], bool] = is_stream,
) -> Responses:
    """Send the requests by that many clients and return the responses. `ends` returns True if the parts of a
    response are complete. Raises ClientError if a response is wrong.
    """
    loop = asyncio.get_running_loop()
    found = Responses()
    numbered = list(enumerate(requests))
    started_at = time.perf_counter()
    over = []
    for client in range(clients):
        done: asyncio.Future[None] = loop.create_future()
        own = numbered[client::clients]
        if own:
            await loop.create_connection(partial(_Client, own, found, done, ends), "127.0.0.1", port)
            over.append(done)
    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.gather(*over)
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
