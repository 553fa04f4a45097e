"""Tests of the dashboard's requests against a scripted HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration
from tests.unit.operator.dashboard.builders import ago

from convoy_operator import errors
from convoy_operator.client import EVENT_PAGES
from convoy_operator.dashboard.gateway import MAX_EVENTS, DashboardGateway
from convoy_operator.metrics import Metrics
from convoy_operator.settings import Settings

Answer = Callable[[web.Request], Any]


class Server:
    """An HTTP server with a handler that the test sets."""

    def __init__(self) -> None:
        self.handler: Answer = lambda _: web.json_response({})
        self.requests: list[dict[str, str]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(dict(request.query))
        respond = self.handler(request)
        return await respond if asyncio.iscoroutine(respond) else respond


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def gateway(server: Server) -> AsyncIterator[DashboardGateway]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with TestServer(app) as http:
        configuration = Configuration(host=str(http.make_url("")).rstrip("/"))
        configuration.connection_pool_maxsize = 1
        async with ApiClient(configuration) as client:
            found = DashboardGateway(client, Settings(request_seconds=5, qps=1, burst=1), Metrics())
            yield found
            await found.close()


async def test_the_newest_events_are_found_in_any_server_order(
    server: Server, gateway: DashboardGateway
) -> None:
    def respond(request: web.Request) -> web.Response:
        page = int(request.query.get("continue", "0"))
        items = [
            {"reason": f"{page}-{one}", "lastTimestamp": ago(minutes=1000 - 100 * page - one)}
            for one in range(100)
        ]
        return web.json_response(
            {"items": items, "metadata": {"continue": str(page + 1)} if page < 2 else {}}
        )

    gateway._limiter = NoLimit()  # type: ignore[assignment]
    server.handler = respond
    found = await gateway.events("team", "u")
    assert (len(server.requests), len(found)) == (3, MAX_EVENTS)
    assert (found[0]["reason"], found[-1]["reason"]) == ("2-99", "2-0")
    server.handler = lambda _: web.json_response({"items": [], "metadata": {"continue": "more"}})
    await gateway.events("team", "u")
    assert len(server.requests) == 3 + EVENT_PAGES


class NoLimit:
    """A rate limit that never waits."""

    async def acquire(self) -> float:
        return 0.0


async def test_split_characters_are_decoded_and_a_log_uses_its_own_pool(
    server: Server, gateway: DashboardGateway
) -> None:
    written, ended = asyncio.Event(), asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for byte in "größe 日本\n".encode():
            await response.write(bytes([byte]))
            await asyncio.sleep(0)
        await ended.wait()
        return response

    gateway._limiter = NoLimit()  # type: ignore[assignment]
    server.handler = stream
    pieces: list[str] = []

    async def follow() -> None:
        async for piece in gateway.log("team", "pod", "worker", lines=7, follow=True):
            pieces.append(piece)
            if "\n" in piece:
                written.set()

    following = asyncio.create_task(follow())
    await asyncio.wait_for(written.wait(), 5)
    assert "".join(pieces) == "größe 日本\n"
    assert server.requests[-1]["tailLines"] == "7" and "limitBytes" not in server.requests[-1]
    # The shared pool has only one connection. The open log must not occupy it, so the probe must succeed.
    server.handler = lambda _: web.json_response({})
    await asyncio.wait_for(gateway.probe(), 2)
    ended.set()
    await asyncio.wait_for(following, 5)


async def test_the_probe_bypasses_the_rate_limit(server: Server, gateway: DashboardGateway) -> None:
    for _ in range(5):
        await asyncio.wait_for(gateway.probe(), 1)
    server.handler = lambda _: web.json_response({"message": "no"}, status=403)
    with pytest.raises(errors.Forbidden):
        await gateway.probe()
