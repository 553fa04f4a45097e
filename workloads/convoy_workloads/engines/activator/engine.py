"""The process of an activator: the server, the connection to the agent, and the drain."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from prometheus_client import disable_created_metrics

from convoy_workloads.engines.activator.app import Activator
from convoy_workloads.engines.activator.hold import Hold
from convoy_workloads.engines.activator.metrics import Metrics
from convoy_workloads.engines.activator.params import Params
from convoy_workloads.engines.activator.upstream import session
from convoy_workloads.runtime import hooks
from convoy_workloads.runtime.errors import ParamsError
from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.params import check_params
from convoy_workloads.runtime.process_exit import exit_process
from convoy_workloads.runtime.rank_context import from_environment
from convoy_workloads.serving.auth import TokenFile
from convoy_workloads.serving.departure import Departure
from convoy_workloads.serving.lifecycle import Lifecycle
from convoy_workloads.serving.listener import END_SECONDS, HttpServer, bind, http_server, run_server
from convoy_workloads.serving.settings import Settings
from convoy_workloads.serving.settings import from_environment as settings_from_environment
from convoy_workloads.serving.traffic import Reporter

BEAT_SECONDS = 0.25
"""Seconds between two heartbeats. The event loop sends them, so an activator that hangs sends none."""


class ActivatorProcess:
    """One activator. `run` serves until it has drained."""

    def __init__(self, params: Params, settings: Settings, heartbeat: HeartbeatWriter, job: str) -> None:
        """Prepare the activator. Call this on the event loop. Raises ParamsError if the token file is
        unusable.
        """
        self._params = params
        self._settings = settings
        self._heartbeat = heartbeat
        self._loop = asyncio.get_running_loop()
        self.lifecycle = Lifecycle()
        self.hold = Hold(params.max_requests)
        self.hold.set_addresses(params.addresses)
        self.metrics = Metrics(self.hold, job)
        self._token = TokenFile(settings.token_file) if settings.token_file else None
        hold = self.hold
        self._departure = Departure(settings, self.lifecycle, hold.idle, lambda: hold.waiting + hold.proxied)

    async def run(self, on_listening: Callable[[int], None] = lambda _: None) -> int:
        """Serve. Return the exit code of the process. `on_listening` is called with the port. Raises
        PortInUse if the port cannot be opened.
        """
        self._heartbeat.start()
        listener = await bind(self._settings.host, self._settings.port)
        self._departure.handle_signals()
        try:
            async with session(self._params.silence_seconds) as client:
                server = http_server(
                    Activator(self._params, self.hold, self.lifecycle, self.metrics, self._token, client)
                )
                self.lifecycle.serving()
                beating = asyncio.ensure_future(self._beat())
                serving: asyncio.Future[Any] = asyncio.ensure_future(server.serve([listener]))
                on_listening(listener.getsockname()[1])
                log_line(f"holds up to {self.hold.most} requests until a replica is ready")
                try:
                    await self._drain_when_asked(server, serving)
                finally:
                    beating.cancel()
        finally:
            self._departure.release_signals()
        return 0

    def leave(self) -> None:
        """Leave the Service and drain, as after SIGTERM. A second call ends the endpoint lag at once."""
        self._departure.leave()

    def receive(self, message: Message) -> None:
        """Apply a message of the agent. Threads other than that of the event loop may call this."""
        found = message.get("addresses")
        if message.get("type") != "endpoints" or not isinstance(found, list):
            return
        addresses = [one for one in found if isinstance(one, str)]
        self._loop.call_soon_threadsafe(self.hold.set_addresses, addresses)

    async def _drain_when_asked(self, server: HttpServer, serving: asyncio.Future[Any]) -> None:
        """Wait for SIGTERM, and end when all requests have ended, or when the drain time is over."""
        leaving: asyncio.Future[Any] = asyncio.ensure_future(self._departure.begun.wait())
        await asyncio.wait({leaving, serving}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        await self._departure.drain(serving, server.close_idle)
        self.lifecycle.end()
        self.hold.close()
        with contextlib.suppress(TimeoutError):
            # Requests that have waited until now get their error.
            await asyncio.wait_for(self.hold.idle.wait(), END_SECONDS)
        server.should_exit = True
        await asyncio.wait({serving}, timeout=END_SECONDS)
        serving.cancel()

    async def _beat(self) -> None:
        while True:
            if self.lifecycle.ready:
                self._heartbeat.serve()
            else:
                self._heartbeat.drain()
            await asyncio.sleep(BEAT_SECONDS)


def main() -> None:
    """Run one activator until SIGTERM, then drain."""
    hooks.mute()
    disable_created_metrics()  # type: ignore[no-untyped-call]
    try:
        context = from_environment(os.environ)
        settings = settings_from_environment(os.environ)
        params: Params = check_params(Params, context.params)
        heartbeat = HeartbeatWriter(context.heartbeat, joined=True)
    except ParamsError as error:
        exit_process(error)

    async def serve() -> int:
        process = ActivatorProcess(params, settings, heartbeat, context.job)
        reporter = Reporter(context, heartbeat, process.receive)
        reporter.traffic = process.metrics.message
        process.hold.on_first = reporter.report_now
        return await process.run()

    sys.exit(run_server(serve()))


if __name__ == "__main__":
    main()
