"""Tests that the server responds to the kubelet's probes whatever other clients do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from prometheus_client import CollectorRegistry, Gauge

from convoy_agents.wire import http
from convoy_agents.wire.http import MAX_CLIENTS, MAX_CLIENTS_EACH, HttpServer

KUBELET = "127.0.0.1"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Clients:
    """Connects to one server from several local addresses."""

    def __init__(self, server: HttpServer, port: int) -> None:
        self.server = server
        self.port = port
        self._open: list[Connection] = []

    async def connect(self, address: str) -> Connection:
        found = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))
        self._open.append(found)
        return found

    async def get(self, path: str, address: str = KUBELET) -> str:
        """Send a GET request, and return the first line of the response. Return an empty text if the
        connection ends without a response.
        """
        reader, writer = await self.connect(address)
        with suppress(ConnectionError):
            writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            return (await reader.readline()).decode().strip()
        return ""

    def end(self) -> None:
        for _, writer in self._open:
            writer.transport.abort()


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    registry = CollectorRegistry()
    Gauge("long", "A page that no socket's buffer holds." * 500_000, registry=registry)
    server = HttpServer(
        {"/metrics": http.metrics(registry), "/healthz": http.healthy, "/readyz": http.ready(lambda: "")}
    )
    found = Clients(server, await server.start(0))
    yield found
    found.end()
    await server.stop()


async def ended(connection: Connection) -> bool:
    """Return True if the server has closed `connection`.

    Before the call, the test must get a response of the server on another connection. A close that the
    server sent before that response has then arrived.
    """
    try:
        async with asyncio.timeout(0.2):
            return await connection[0].read(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


OF_ONE = ["127.0.0.2"] * 100
OF_MANY = [f"127.0.1.{number}" for number in range(1, 101)]
OF_THE_NODE = [KUBELET] * 100


@pytest.mark.parametrize("others", [OF_ONE, OF_MANY, OF_THE_NODE], ids=["one", "many", "the node's own"])
async def test_probes_are_answered_while_a_hundred_idle_connections_are_open(
    clients: Clients, others: list[str]
) -> None:
    for address in others:
        await clients.connect(address)
    for _ in range(10):
        for path in ("/healthz", "/readyz"):
            assert await clients.get(path) == "HTTP/1.1 200 OK"


async def test_a_client_over_its_limit_loses_its_own_oldest_connection(
    clients: Clients,
) -> None:
    slow = await clients.connect(KUBELET)
    crowd = [await clients.connect("127.0.0.2") for _ in range(MAX_CLIENTS_EACH + 1)]
    assert await clients.get("/healthz", "127.0.0.3") == "HTTP/1.1 200 OK"
    assert [await ended(one) for one in (slow, *crowd)] == [False, True, *[False] * MAX_CLIENTS_EACH]
    slow[1].write(b"GET /healthz HTTP/1.1\r\n\r\n")
    assert await slow[0].readline() == b"HTTP/1.1 200 OK\r\n"


async def test_at_the_total_limit_the_client_with_most_connections_loses_one(clients: Clients) -> None:
    slow = await clients.connect(KUBELET)
    crowd = [await clients.connect("127.0.0.2") for _ in range(MAX_CLIENTS_EACH)]
    for number in range(MAX_CLIENTS - MAX_CLIENTS_EACH - 1):
        await clients.connect(f"127.0.1.{number + 1}")
    assert await clients.get("/healthz", "127.0.0.3") == "HTTP/1.1 200 OK"
    assert [await ended(one) for one in (slow, *crowd)] == [
        False, True, *[False] * (MAX_CLIENTS_EACH - 1),
    ]  # fmt: skip


async def test_a_client_that_does_not_read_is_disconnected(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.5)
    reader, writer = await asyncio.open_connection("127.0.0.1", clients.port, limit=1024)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"Length" in line)
    async with asyncio.timeout(10):
        while clients.server._clients:  # noqa: ASYNC110 - the server has no event for this
            await asyncio.sleep(0.05)
    with suppress(ConnectionError):
        assert len(await reader.read()) < length
    writer.close()


async def test_readyz_names_missing_parts_and_unknown_paths_return_404(unused_tcp_port: int) -> None:
    missing = ["a", "b"]
    server = HttpServer({"/readyz": http.ready(lambda: ", ".join(missing))})
    port = await server.start(unused_tcp_port, "127.0.0.1")
    clients = Clients(server, port)

    async def get(request: str) -> tuple[str, str]:
        reader, writer = await clients.connect(KUBELET)
        writer.write(f"{request} HTTP/1.1\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        return head.split("\r\n")[0], body

    assert await get("GET /readyz?x") == ("HTTP/1.1 503 Service Unavailable", "not ready: a, b\n")
    missing.clear()
    assert await get("GET /readyz") == ("HTTP/1.1 200 OK", "ok\n")
    assert await get("GET /other") == ("HTTP/1.1 404 Not Found", "/readyz\n")
    assert await get("POST /readyz") == ("HTTP/1.1 405 Method Not Allowed", "GET only\n")
    await server.stop()
