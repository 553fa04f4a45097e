"""Measures the activator: the time from a replica's readiness to the responses of the requests that wait.

The replica is a small HTTP server that opens its port after a while, as a replica that loads its model does.
The baseline is what clients do without an activator: they send the request again, with a growing pause. The
control is an activator that learns of the replica only once a second.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from convoy_workloads.bench.arms import Arm, Arms, function
from convoy_workloads.bench.comparison import Bench, Equality, Measure
from convoy_workloads.engines.activator.engine import ActivatorProcess
from convoy_workloads.engines.activator.params import Params
from convoy_workloads.local.ports import free_port
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.serving.settings import Settings

POLL_SECONDS = 1.0
RETRY_SECONDS = (0.5, 8.0)
"""First and longest pause of a client, those of OpenAI's client. The pause doubles after each attempt."""
EVENT, POLL, RETRY = "event", "poll", "retry"


def measure(kind: str, workload: dict[str, float], seed: int = 1) -> dict[str, Any]:
    """Let requests wait for a replica. Return the times from its readiness to the responses."""
    chance = random.Random(seed)  # noqa: S311 - spreads attempts, no secret
    return asyncio.run(_measure(kind, int(workload["requests"]), workload["start_seconds"], chance))


async def _measure(kind: str, requests: int, start_seconds: float, chance: random.Random) -> dict[str, Any]:
    port, ready = free_port(), asyncio.Event()
    timeout = aiohttp.ClientTimeout(60)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        if kind == RETRY:
            url = f"http://127.0.0.1:{port}/"
            calls = [_retried(session, url, number, chance) for number in range(requests)]
            found = await _run_until_answered(calls, port, ready, start_seconds)
        else:
            async with running() as one:
                url = f"http://127.0.0.1:{one.port}/"
                one.watch(ready, port, POLL_SECONDS if kind == POLL else 0.0)
                calls = [_sent(session, url, number) for number in range(requests)]
                found = await _run_until_answered(calls, port, ready, start_seconds)
    texts, waits = [text for text, _ in found], [at for _, at in found]
    return {
        "median_seconds": statistics.median(waits),
        "last_seconds": max(waits),
        "texts": hashlib.sha256("\0".join(texts).encode()).hexdigest(),
    }


async def _run_until_answered(
    calls: list[Any], port: int, ready: asyncio.Event, start_seconds: float
) -> list[tuple[str, float]]:
    """Send all requests, open the replica's port later, and return texts and times since then."""
    tasks = [asyncio.create_task(one) for one in calls]
    await asyncio.sleep(start_seconds)
    async with replica(port):
        began = time.monotonic()
        ready.set()
        return [(text, at - began) for text, at in await asyncio.gather(*tasks)]


async def _sent(session: aiohttp.ClientSession, url: str, number: int) -> tuple[str, float]:
    async with session.post(url, data=str(number)) as response:
        response.raise_for_status()
        return await response.text(), time.monotonic()


async def _retried(
    session: aiohttp.ClientSession, url: str, number: int, chance: random.Random
) -> tuple[str, float]:
    first, longest = RETRY_SECONDS
    for attempt in range(100):
        try:
            return await _sent(session, url, number)
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(min(longest, first * 2.0**attempt) * chance.uniform(0.75, 1.0))
    raise TimeoutError(f"request {number} got no response")


@asynccontextmanager
async def replica(port: int) -> AsyncIterator[None]:
    """Run a small replica that returns what it gets."""

    async def handle(request: web.Request) -> web.Response:
        return web.Response(text=f"echo {await request.text()}")

    app = web.Application()
    app.router.add_post("/", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield
    finally:
        await runner.cleanup()


class Running:
    """An activator that runs in this process, with the task that reports the replica to it."""

    def __init__(self, process: ActivatorProcess, port: int) -> None:
        self.process = process
        self.port = port
        self._task: asyncio.Task[None] | None = None

    def watch(self, ready: asyncio.Event, port: int, poll_seconds: float) -> None:
        """Report the replica when it is ready: at once, or at the next poll."""

        async def report() -> None:
            began = time.monotonic()
            await ready.wait()
            if poll_seconds:
                await asyncio.sleep(poll_seconds - (time.monotonic() - began) % poll_seconds)
            self.process.hold.set_addresses([f"127.0.0.1:{port}"])

        self._task = asyncio.create_task(report())


@asynccontextmanager
async def running(**params: Any) -> AsyncIterator[Running]:
    """Yield an activator that runs in this process."""
    settings = Settings(port=0, host="127.0.0.1", drain_seconds=1.0, endpoint_lag_seconds=0.0)
    with tempfile.TemporaryDirectory() as folder:
        beat = Path(folder) / "heartbeat"
        beat.touch()
        made = ActivatorProcess(Params(**params), settings, HeartbeatWriter(str(beat)), "bench/activator")
        listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(made.run(listening.set_result))
        try:
            yield Running(made, await listening)
        finally:
            made.leave()
            await task


def _arm(name: str, kind: str, options: Mapping[str, Any]) -> Arm:
    return function(name, measure, {"kind": kind, "workload": options["workload"]})


def arms(options: Mapping[str, Any]) -> Arms:
    """Return the arms: the activator, clients that retry, and an activator without the event."""
    return Arms(
        _arm("activator", EVENT, options),
        (
            _arm("activator that asks once a second", POLL, options),
            _arm("clients that retry", RETRY, options),
        ),
        _arm("activator that asks once a second again", POLL, options),
    )


BENCH = Bench(
    sizes={
        "small": {"workload": {"requests": 16, "start_seconds": 0.3}},
        "full": {"workload": {"requests": 128, "start_seconds": 5.3}},
    },
    arms=arms,
    measures=lambda _: [
        Measure(
            name="time from the replica's readiness to the median response",
            unit="s",
            value_of=lambda trial: float(trial.result["median_seconds"]),
            target=5.0,
        ),
        Measure(
            name="time from the replica's readiness to the last response",
            unit="s",
            value_of=lambda trial: float(trial.result["last_seconds"]),
        ),
    ],
    equal=(Equality(key="texts", name="all responses"),),
)
