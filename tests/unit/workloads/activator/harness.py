"""An activator and its replicas, in the test's own process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from convoy_workloads.engines.activator.engine import ActivatorProcess
from convoy_workloads.engines.activator.params import Params
from convoy_workloads.runtime.heartbeat import Heartbeat, HeartbeatWriter, read
from convoy_workloads.serving.settings import Settings

SECONDS = 30.0
"""Time limit of each wait."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Running:
    """An activator that runs as a task of the test."""

    def __init__(self, process: ActivatorProcess, heartbeat: Path) -> None:
        self.process = process
        self.port = 0
        self.task: asyncio.Task[int]
        self.session: aiohttp.ClientSession
        self._heartbeat = heartbeat

    @property
    def hold(self) -> Any:
        return self.process.hold

    @property
    def heartbeat(self) -> Heartbeat:
        return read(str(self._heartbeat))

    def url(self, path: str = "/v1/completions") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def post(
        self, body: bytes = b"{}", path: str = "/v1/completions", **headers: str
    ) -> tuple[int, str, Any]:
        """Return the status, the text and the headers of a response."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = URL(self.url(path), encoded=True)
        async with self.session.post(url, data=body, headers=named) as response:
            return response.status, await response.text(), response.headers

    def posted(self, *bodies: bytes, **headers: str) -> list[asyncio.Task[tuple[int, str, Any]]]:
        """Send requests, each after the one before has its place."""
        return [asyncio.create_task(self.post(body, **headers)) for body in bodies]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds."""
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110 - other tasks change what is waited for
                await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def activator(folder: Path, token: str = "", **params: Any) -> AsyncIterator[Running]:
    """Yield an activator."""
    beat = folder / "heartbeat"
    beat.touch()
    token_file = folder / "token"
    token_file.write_text(token)
    settings = Settings(
        port=0,
        host="127.0.0.1",
        drain_seconds=params.pop("drain_seconds", SECONDS),
        endpoint_lag_seconds=0.0,
        token_file=token_file if token else None,
    )
    made = ActivatorProcess(
        Params(**params), settings, HeartbeatWriter(str(beat), joined=True), "default/job"
    )
    running = Running(made, beat)
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    running.task = asyncio.create_task(made.run(listening.set_result))
    try:
        running.port = await asyncio.wait_for(listening, SECONDS)
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(SECONDS)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as running.session:
            yield running
    finally:
        made.leave()
        made.hold.close()
        await asyncio.wait({running.task}, timeout=SECONDS)


@contextlib.asynccontextmanager
async def replica(handler: Handler) -> AsyncIterator[str]:
    """Yield the address of a server that answers every request by `handler`."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def echo(request: web.Request) -> web.Response:
    """Return the request's body, with its method, target and headers."""
    body = await request.read()
    seen = {f"x-seen-{name}": value for name, value in request.headers.items()}
    return web.Response(
        body=body, headers={**seen, "x-target": f"{request.method} {request.raw_path}", "x-own": "1"}
    )
