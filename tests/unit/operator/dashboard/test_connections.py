"""Tests of the connection limits on a real server. Connections in use must stay open."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import aiohttp
import pytest
import uvicorn

from convoy_operator.dashboard import connections
from convoy_operator.dashboard.auth.access import FullAccess
from convoy_operator.dashboard.auth.identity import Identity
from convoy_operator.dashboard.auth.request_guard import SESSION
from convoy_operator.dashboard.auth.sessions import Sessions
from convoy_operator.dashboard.connections import Connections

OTHERS, SOCKETS = 16, 3
STRANGER = "127.0.0.2"
LONG = 16 * 1024 * 1024
"""Length in bytes of a response that is larger than every socket buffer."""
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Send a long response for the path /long and a short one for other paths. The path of a websocket
    names its user.
    """
    if scope["type"] == "websocket":
        scope[SESSION] = Sessions(60, 600).start(Identity(scope["path"]), FullAccess())
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
    elif scope["type"] == "http":
        length = LONG if scope["path"] == "/long" else 2
        headers = [(b"content-length", str(length).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * length})


class Pages:
    """A running server, and clients with different loopback addresses."""

    def __init__(self, port: int, stack: AsyncExitStack) -> None:
        self.port = port
        self._stack = stack
        self._held: list[Connection] = []

    async def connect(self, address: str = STRANGER, *, reads: bool = True) -> Connection:
        """Open a connection from `address`. If `reads` is False, the client has small buffers and does not
        read most of a response.
        """
        sock = socket.socket()
        sock.setblocking(False)
        sock.bind((address, 0))
        if not reads:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        found = await asyncio.open_connection(sock=sock, limit=65536 if reads else 1024)
        self._stack.callback(found[1].transport.abort)
        # Keep a reference, because a connection without references is closed.
        self._held.append(found)
        return found

    async def get(self, connection: Connection) -> bool:
        """Return True if a request on the connection gets a response. The connection stays open."""
        reader, writer = connection
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            return await reader.readexactly(2) == b"xx"
        return False

    async def socket(self, user: str) -> aiohttp.ClientWebSocketResponse:
        client = await self._stack.enter_async_context(aiohttp.ClientSession())
        return await self._stack.enter_async_context(
            client.ws_connect(f"http://127.0.0.1:{self.port}/{user}")
        )


@pytest.fixture
async def pages(monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> AsyncIterator[Pages]:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", OTHERS)
    bounded = Connections(app, SOCKETS)
    server = uvicorn.Server(
        uvicorn.Config(
            bounded, http=bounded.protocol(), port=unused_tcp_port, log_config=None, lifespan="off",
            timeout_graceful_shutdown=1,
        )
    )  # fmt: skip
    running = asyncio.create_task(server.serve())
    async with AsyncExitStack() as stack:
        while not server.started:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        yield Pages(unused_tcp_port, stack)
    server.should_exit = True
    await running


async def ended(reader: asyncio.StreamReader) -> None:
    """Wait until the server has closed the connection."""
    with suppress(ConnectionError):
        while await reader.read(65536):
            pass


async def test_idle_connections_are_closed_and_requests_are_served(pages: Pages) -> None:
    idle = [await pages.connect() for _ in range(40)]
    assert await pages.get(await pages.connect("127.0.0.1"))
    aborted = len(idle) + 1 - OTHERS
    waits = [asyncio.create_task(ended(reader)) for reader, _ in idle]
    await asyncio.wait(waits[:aborted])
    assert not any(one.done() for one in waits[aborted:])


async def test_active_clients_and_clients_with_few_connections_keep_theirs(pages: Pages) -> None:
    few = await pages.connect("127.0.0.1")
    used = await pages.connect()
    for _ in range(5):
        idle = [await pages.connect() for _ in range(OTHERS - 3)]
        assert await pages.get(used)
    assert await pages.get(few)
    assert await pages.get(idle[-1])


async def test_sockets_of_pages_survive_other_connections(pages: Pages) -> None:
    page = await pages.socket("ada")
    for _ in range(3 * OTHERS):
        await pages.connect("127.0.0.1")
    await page.ping()
    with pytest.raises(TimeoutError):
        await page.receive(timeout=0.2)


async def test_the_user_with_the_most_sockets_loses_the_oldest(pages: Pages) -> None:
    few = await pages.socket("eve")
    first, *more = [await pages.socket("ada") for _ in range(SOCKETS)]
    assert (await first.receive(timeout=20)).type is aiohttp.WSMsgType.CLOSED
    for stays in (few, *more):
        with pytest.raises(TimeoutError):
            await stays.receive(timeout=0.2)


async def test_a_client_that_reads_nothing_is_dropped_at_the_limit(pages: Pages) -> None:
    request = b"GET /long HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    stalled = [await pages.connect(reads=False) for _ in range(OTHERS)]
    for reader, writer in stalled:
        writer.write(request)
        await reader.readuntil(b"\r\n\r\n")
    for _ in range(OTHERS):
        assert await pages.get(await pages.connect())
    for reader, _ in stalled:
        length = 0
        with suppress(ConnectionError):
            while piece := await reader.read(65536):
                length += len(piece)
        assert length < LONG
