"""The process of a serving rank: it opens the port, loads the model, serves, and drains after SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.runtime.log import log_line
from convoy_workloads.serving import admin
from convoy_workloads.serving.app import App
from convoy_workloads.serving.auth import TokenFile
from convoy_workloads.serving.compute import ComputeLoop
from convoy_workloads.serving.front import Front, Limits
from convoy_workloads.serving.lifecycle import Lifecycle, State
from convoy_workloads.serving.metrics import Metrics
from convoy_workloads.serving.protocol import ServingEngine
from convoy_workloads.serving.settings import Settings

BIND_SECONDS = 5.0
"""Seconds to retry if the port is in use. A replaced rank may still be ending."""
KEEP_ALIVE_SECONDS = 75
"""Seconds until an idle connection is closed. Proxies usually close theirs after 60 s."""
BACKLOG = 2048
END_SECONDS = 5.0
"""Seconds for the last responses and the compute thread to end."""


class PortInUse(Exception):
    """Raised if the port cannot be opened. The message says why and what to do."""


@dataclass(frozen=True)
class Identity:
    """The labels of a rank's metrics."""

    engine: str
    model: str
    job: str


class _Server(uvicorn.Server):
    """A server that leaves the signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle no signal."""
        yield


class ServingProcess:
    """One serving rank. `run` serves until the rank has drained or has failed."""

    def __init__(
        self,
        engine: ServingEngine,
        settings: Settings,
        limits: Limits,
        heartbeat: HeartbeatWriter,
        identity: Identity,
    ) -> None:
        """Prepare the rank. Call this on the event loop. Raises ParamsError if the token file is unusable."""
        self._settings = settings
        self.lifecycle = Lifecycle()
        metrics = Metrics(identity.engine, identity.model, identity.job)
        self.compute = ComputeLoop(engine, heartbeat, self.lifecycle, metrics, limits.queue)
        token = TokenFile(settings.token_file) if settings.token_file else None
        self.front = Front(self.compute, self.lifecycle, metrics, engine.tokenizer, limits, token)
        self._leaving = asyncio.Event()
        self._refusing = asyncio.Event()
        """Set when new requests must be refused before the endpoint lag has passed."""
        self._metrics = metrics
        _add_gauges(metrics, self.front)

    async def run(self, on_listening: Callable[[int], None] = lambda _: None) -> int:
        """Serve. Return the exit code of the process. `on_listening` is called with the port.

        Raises PortInUse.
        """
        loop = asyncio.get_running_loop()
        listener = await _bind(self._settings.host, self._settings.port)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.leave)
        public = _server(App(self.front))
        servers = [(public, loop.create_task(public.serve([listener])))]
        try:
            with _admin_listener(self._settings) as local:
                private = _server(admin.app(self.front, self.leave))
                servers.append((private, loop.create_task(private.serve([local]))))
                self.compute.start()
                on_listening(listener.getsockname()[1])
                await self._serve(servers)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        return 1 if self.lifecycle.state is State.FAILED else 0

    def traffic(self) -> Message:
        """Return the message that reports the rank's requests to its agent."""
        usage = self.compute.usage()
        return self._metrics.totals.message(self.compute.waiting + usage.preempted, usage.running)

    def leave(self) -> None:
        """Leave the Service and drain, as after SIGTERM. A second call ends the endpoint lag at once."""
        if self._leaving.is_set():
            self._refusing.set()
        else:
            self._leaving.set()
            self.lifecycle.leave()
            log_line(
                f"ends: accepts requests for another {self._settings.endpoint_lag_seconds:g} s, until all "
                f"proxies know; then the requests in flight have {self._settings.drain_seconds:g} s"
            )

    async def _serve(self, servers: Sequence[tuple[uvicorn.Server, asyncio.Task[None]]]) -> None:
        over = asyncio.ensure_future(self.compute.ended.wait())
        leaving = asyncio.ensure_future(self._leaving.wait())
        tasks = [task for _, task in servers]
        await asyncio.wait({over, leaving, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        if self._leaving.is_set() and not over.done():
            await self._drain(over)
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

    async def _drain(self, over: asyncio.Future[Any]) -> None:
        """Wait until all proxies know that this replica is ending, then until its requests have ended."""
        refusing = asyncio.ensure_future(self._refusing.wait())
        lag = self._settings.endpoint_lag_seconds
        await asyncio.wait({over, refusing}, timeout=lag, return_when=asyncio.FIRST_COMPLETED)
        refusing.cancel()
        self.lifecycle.drain()
        idle: asyncio.Future[Any] = asyncio.ensure_future(self.front.idle.wait())
        await asyncio.wait(
            {over, idle}, timeout=self._settings.drain_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if not idle.done():
            log_line(f"{self.front.in_flight} requests did not end within the drain time and are cancelled")
        idle.cancel()


def _server(app: object) -> _Server:
    """Return a server for an application. uvicorn's own limits and logs are off."""
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(END_SECONDS),
        backlog=BACKLOG,
    )
    return _Server(config)


async def _bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises PortInUse."""
    deadline = asyncio.get_running_loop().time() + BIND_SECONDS
    while True:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(BACKLOG)
            listener.setblocking(False)
            return listener
        except OSError as error:
            listener.close()
            if asyncio.get_running_loop().time() > deadline:
                raise PortInUse(
                    f"port {port} of {host} cannot be opened: {os.strerror(error.errno or 0)}. End the "
                    "process that uses the port, or set spec.service.port to another one"
                ) from error
        await asyncio.sleep(0.1)


@contextlib.contextmanager
def _admin_listener(settings: Settings) -> Iterator[socket.socket]:
    """Yield a listening Unix socket that only this user can connect to."""
    with tempfile.TemporaryDirectory(prefix="convoy-admin-") as folder:
        path = settings.admin_socket or Path(folder) / "admin.sock"
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        try:
            listener.listen(16)
            listener.setblocking(False)
            yield listener
        finally:
            listener.close()
            path.unlink(missing_ok=True)


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
