"""The process of a serving rank: it opens the port, loads the model, serves, and drains after SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn

from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.serving import admin
from convoy_workloads.serving.app import App
from convoy_workloads.serving.auth import TokenFile
from convoy_workloads.serving.compute import ComputeLoop
from convoy_workloads.serving.departure import Departure
from convoy_workloads.serving.extensions import (
    OwnAdminRoutes,
    OwnMetrics,
    OwnRoutes,
    PeersListener,
)
from convoy_workloads.serving.front import Front, Limits
from convoy_workloads.serving.lifecycle import Lifecycle, State
from convoy_workloads.serving.listener import HttpServer, admin_listener, bind, http_server
from convoy_workloads.serving.metrics import Metrics
from convoy_workloads.serving.own_service import ServiceTask
from convoy_workloads.serving.peers import addresses
from convoy_workloads.serving.protocol import Engine, Tokenizer
from convoy_workloads.serving.settings import Settings

END_SECONDS = 5.0
"""Seconds for the last responses and the compute thread to end."""


@dataclass(frozen=True)
class Identity:
    """The labels of a rank's metrics."""

    engine: str
    model: str
    job: str


class ServingProcess:
    """One serving rank. `run` serves until the rank has drained or has failed."""

    def __init__(
        self,
        engine: Engine[Any, Any],
        settings: Settings,
        limits: Limits,
        heartbeat: HeartbeatWriter,
        identity: Identity,
    ) -> None:
        """Prepare the rank. Call this on the event loop. Raises ParamsError if the token file is unusable."""
        self._settings = settings
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self.lifecycle = Lifecycle()
        metrics = Metrics(identity.engine, identity.model, identity.job)
        self.compute = ComputeLoop(engine, heartbeat, self.lifecycle, metrics, limits.queue)
        token = TokenFile(settings.token_file) if settings.token_file else None
        # Only engines that continue text have a tokenizer.
        tokenizer: Tokenizer | None = getattr(engine, "tokenizer", None)
        self.front = Front(self.compute, self.lifecycle, metrics, tokenizer, limits, token)
        self._departure = Departure(settings, self.lifecycle, self.front.idle, lambda: self.front.in_flight)
        self._metrics = metrics
        self._admin_routes = (
            engine.admin_routes(self.compute.call) if isinstance(engine, OwnAdminRoutes) else ()
        )
        self._service = ServiceTask(engine)
        self._routes = engine.routes(self.front) if isinstance(engine, OwnRoutes) else ()
        if isinstance(engine, OwnMetrics):
            engine.register(metrics)
        _add_gauges(metrics, self.front)

    async def run(self, on_listening: Callable[[int], None] = lambda _: None) -> int:
        """Serve. Return the exit code of the process. `on_listening` is called with the port. Raises
        PortInUse if the port cannot be opened.
        """
        loop = asyncio.get_running_loop()
        listener = await bind(self._settings.host, self._settings.port)
        self._departure.handle_signals()
        public = http_server(App(self.front, self._routes))
        servers = [(public, loop.create_task(public.serve([listener])))]
        try:
            with admin_listener(self._settings.admin_socket) as local:
                private = http_server(admin.app(self.front, self.leave, self._admin_routes))
                servers.append((private, loop.create_task(private.serve([local]))))
                self.compute.start()
                on_listening(listener.getsockname()[1])
                await self._serve(public, servers)
        finally:
            self._departure.release_signals()
        return 1 if self.lifecycle.state is State.FAILED else 0

    def traffic(self) -> Message:
        """Return the message that reports the rank's requests to its agent."""
        usage = self.compute.usage()
        return self._metrics.totals.message(self.compute.waiting + usage.preempted, usage.running)

    def leave(self) -> None:
        """Leave the Service and drain, as after SIGTERM. A second call ends the endpoint lag at once."""
        self._departure.leave()

    def receive(self, message: Message) -> None:
        """Apply a message of the agent. Threads other than that of the event loop may call this."""
        engine, found = self._engine, addresses(message)
        if found is not None and isinstance(engine, PeersListener):
            with contextlib.suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(engine.set_peers, found[0], found[1:])

    async def _serve(
        self, public: HttpServer, servers: Sequence[tuple[uvicorn.Server, asyncio.Task[None]]]
    ) -> None:
        over = asyncio.ensure_future(self.compute.ended.wait())
        leaving = asyncio.ensure_future(self._departure.begun.wait())
        service = self._service.start()
        tasks = [task for _, task in servers]
        await asyncio.wait({over, leaving, service, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        if error := self._service.error:
            traceback.print_exception(error)
            self.lifecycle.fail(f"the engine has failed: {type(error).__name__}: {error}")
        elif self._departure.begun.is_set() and not over.done():
            until = self._loop.time() + self._settings.endpoint_lag_seconds + self._settings.drain_seconds
            await self._departure.drain(over, public.close_idle)
            await self._service.drain(until - self._loop.time())
        await self._service.stop()
        self.lifecycle.end()
        self.compute.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.compute.ended.wait(), END_SECONDS)
        with contextlib.suppress(TimeoutError):
            # Requests that the engine has ended get their last bytes.
            await asyncio.wait_for(self.front.idle.wait(), END_SECONDS)
        for server, _ in servers:
            server.should_exit = True
        await asyncio.wait(tasks, timeout=END_SECONDS)
        for one in (over, leaving, *tasks):
            one.cancel()


def _add_gauges(metrics: Metrics, front: Front) -> None:
    compute = front.compute
    metrics.gauge(
        "convoy_num_requests_waiting",
        "Requests that wait for admission to the batch, or for memory.",
        lambda: compute.waiting + compute.usage().preempted,
    )
    metrics.gauge("convoy_num_requests_running", "Requests in the batch.", lambda: compute.usage().running)
    metrics.gauge(
        "convoy_kv_cache_usage_perc",
        "Share of the key-value cache that running requests use, from 0 to 1.",
        lambda: compute.usage().cache_share,
    )
    metrics.gauge("convoy_inference_pending_requests", "Requests that wait or run.", lambda: compute.pending)
