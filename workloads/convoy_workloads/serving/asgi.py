"""Helpers for raw ASGI routes: headers, bodies and responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from convoy_workloads.serving.errors import Headers, RequestError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CLOSE = (b"connection", b"close")
"""Header of a response after which the client must open another connection."""


class ClientLeft(Exception):
    """Raised if the client has left before it has sent its request."""


async def read_body(headers: dict[bytes, bytes], receive: Receive, most: int, deadline: float) -> bytes:
    """Return the body of a request. Raises RequestError if it is compressed, has more than `most` bytes or
    does not arrive before `deadline` (monotonic time), and ClientLeft.
    """
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        why = "Content-Encoding: this server reads no compressed bodies; send the body as it is"
        raise RequestError(415, why, "Content-Encoding", "unsupported_encoding")
    try:
        async with asyncio.timeout_at(deadline):
            return await _read_body(headers, receive, most)
    except TimeoutError as error:
        why = "body: did not arrive before the request's deadline; send it again"
        raise RequestError(408, why, "body", "request_timeout") from error


async def _read_body(headers: dict[bytes, bytes], receive: Receive, most: int) -> bytes:
    too_long = RequestError(413, f"body: must have at most {most} bytes", "body", "body_too_large")
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length) > most:
        raise too_long
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > most:
            raise too_long
        return body
    parts = []
    left = most
    while True:
        if message["type"] == "http.disconnect":
            raise ClientLeft
        part: bytes = message.get("body", b"")
        left -= len(part)
        if left < 0:
            raise too_long
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()


async def respond(send: Send, status: int, headers: Headers, body: bytes, kind: bytes) -> None:
    """Send a whole response with a body of the content type `kind`."""
    length = str(len(body)).encode()
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", kind), (b"content-length", length), *headers],
        }
    )
    await send({"type": "http.response.body", "body": body})
