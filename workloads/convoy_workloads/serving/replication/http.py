"""The exchange between replicas over HTTP: the client, and the routes of a replica.

Requests and responses are frames (`messages`), below /replication. They have the token of the service, if it
has one, and the routes respond before the replica is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import aiohttp
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from yarl import URL

from convoy_workloads.serving.asgi import read_body
from convoy_workloads.serving.auth import TokenFile
from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.extensions import Guard
from convoy_workloads.serving.replication.frames import HEAD_BYTES, MAX_FRAME, Decoder, decode, encode
from convoy_workloads.serving.replication.messages import (
    Busy,
    Confirm,
    FrameError,
    Message,
    Pull,
    Push,
    Supply,
)
from convoy_workloads.serving.replication.transport import Unreachable

PATH = "/replication"
KIND = "application/octet-stream"
CONNECT_SECONDS = 2.0
"""Longest time to connect to a peer."""
REQUEST_SECONDS = 5.0
"""Longest time for a request and its response, except for a state."""
SILENCE_SECONDS = 30.0
"""Longest time for which a peer that sends a state may send nothing."""
CONCURRENT = 32
"""Maximum number of requests of peers that are read at a time. Their bodies need memory."""
_PART = 1 << 18
M = TypeVar("M", Confirm, Supply)


class Responder(Protocol):
    """The part of a replicator that responds to peers. An engine may have one of its own, which responds
    before there is a replicator. The methods may raise RequestError.
    """

    def on_push(self, message: Push) -> Confirm | Busy:
        """Respond to a push."""
        ...

    def on_pull(self, message: Pull) -> Supply:
        """Respond to a pull."""
        ...

    def on_state(self, message: Pull) -> AsyncIterator[Message]:
        """Respond to the request for a state."""
        ...


class HttpTransport:
    """The way to peers over HTTP. Use it as a context manager."""

    def __init__(self, token: TokenFile | None = None) -> None:
        """`token`: the token of the service; None if it has none."""
        self._token = token
        self._client: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> HttpTransport:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
        # Redirects, proxies and cookies would send operations to others than the peers.
        self._client = aiohttp.ClientSession(
            timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    async def push(self, address: str, message: Push) -> Confirm:
        """Send operations to a peer. Raises Unreachable if the peer does not answer, is busy or answers with
        an error.
        """
        return await self._exchange(address, "push", message, Confirm)

    async def pull(self, address: str, message: Pull) -> Supply:
        """Request operations from a peer. Raises Unreachable if the peer does not answer, is busy or answers
        with an error.
        """
        return await self._exchange(address, "pull", message, Supply)

    async def state(self, address: str, message: Pull) -> AsyncIterator[Message]:
        """Request a state from a peer, and yield its parts. Raises Unreachable if the peer does not answer,
        is busy or answers with an error.
        """
        decoder = Decoder()
        try:
            async with self._request(address, "state", message) as response:
                async for data in response.content.iter_chunked(_PART):
                    for one in decoder.feed(data):
                        yield one
        except (aiohttp.ClientError, TimeoutError, OSError, FrameError) as error:
            raise Unreachable(_describe(error)) from error

    async def _exchange(self, address: str, name: str, message: Push | Pull, kind: type[M]) -> M:
        try:
            async with (
                asyncio.timeout(REQUEST_SECONDS),
                self._request(address, name, message) as response,
            ):
                found = decode(await _read(response))
        except (aiohttp.ClientError, TimeoutError, OSError, FrameError) as error:
            raise Unreachable(_describe(error)) from error
        if isinstance(found, Busy):
            raise Unreachable("is busy")
        if not isinstance(found, kind):
            raise Unreachable(f"responds with {type(found).__name__}")
        return found

    @contextlib.asynccontextmanager
    async def _request(
        self, address: str, name: str, message: Push | Pull
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._client is None:
            raise RuntimeError("the transport is not open")
        headers = {"Content-Type": KIND}
        if self._token is not None:
            headers["Authorization"] = self._token.header
        async with self._client.post(
            URL(f"http://{address}{PATH}/{name}"),
            data=encode(message),
            headers=headers,
            allow_redirects=False,
        ) as response:
            if response.status != 200:
                raise Unreachable(f"responds with status {response.status}")
            yield response


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of a response. Raises FrameError if it is too long."""
    parts, size = [], 0
    async for part in response.content.iter_chunked(_PART):
        size += len(part)
        if size > HEAD_BYTES + MAX_FRAME:
            raise FrameError(f"a response has more than {HEAD_BYTES + MAX_FRAME} bytes")
        parts.append(part)
    return b"".join(parts)


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def routes(responder: Responder, guard: Guard) -> Sequence[BaseRoute]:
    """Return the routes by which peers reach a replica. An engine adds them to its own (`OwnRoutes`)."""
    slots = asyncio.Semaphore(CONCURRENT)

    def route(name: str, respond: Callable[[Request], Awaitable[Response]]) -> Route:
        async def endpoint(request: Request) -> Response:
            # Without a valid token, no byte of the body is read.
            guard.authenticate(dict(request.scope["headers"]))
            if slots.locked():
                raise RequestError(503, "this replica has too many requests of peers", code="busy", retry=1.0)
            async with slots:
                return await respond(request)

        return Route(f"{PATH}/{name}", endpoint, methods=["POST"])

    async def push(request: Request) -> Response:
        return _one(responder.on_push(await _message(request, Push)))

    async def pull(request: Request) -> Response:
        return _one(responder.on_pull(await _message(request, Pull)))

    async def state(request: Request) -> Response:
        found = responder.on_state(await _message(request, Pull))
        return StreamingResponse((encode(one) async for one in found), media_type=KIND)

    return [route("push", push), route("pull", pull), route("state", state)]


def _one(message: Message) -> Response:
    return Response(encode(message), media_type=KIND)


R = TypeVar("R", Push, Pull)


async def _message(request: Request, kind: type[R]) -> R:
    """Return the message of a request. Raises RequestError if the body is too long or is no message of this
    kind.
    """
    headers: dict[bytes, bytes] = dict(request.scope["headers"])
    until = asyncio.get_running_loop().time() + REQUEST_SECONDS
    receive: Any = request.receive
    body = await read_body(headers, receive, HEAD_BYTES + MAX_FRAME, until)
    try:
        found = decode(body)
    except FrameError as error:
        raise RequestError(400, f"body: {error}", "body", "invalid_frame") from error
    if not isinstance(found, kind):
        raise RequestError(400, f"body: is {type(found).__name__}", "body", "invalid_frame")
    return found
