"""The dashboard's process, which runs the watches, the pages, the metrics and the probes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import structlog
import uvicorn
from fastapi import FastAPI
from kubernetes.aio.client import ApiClient
from nicegui import Client, core, ui
from nicegui import app as pages
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from convoy_controllers.resources import TRAINING_JOBS
from convoy_operator import http
from convoy_operator.connection import connect, package_version
from convoy_operator.dashboard import page_limit
from convoy_operator.dashboard.api_monitor import ApiMonitor, MonitoredGateway
from convoy_operator.dashboard.auth.refusal import STYLE, refusal
from convoy_operator.dashboard.auth.request_guard import SESSION, RequestGuard
from convoy_operator.dashboard.auth.session_resolver import SessionResolver
from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.cache import DashboardCache
from convoy_operator.dashboard.connections import Connections
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.event_cache import EventCache
from convoy_operator.dashboard.feed import Feed
from convoy_operator.dashboard.gateway import DashboardGateway
from convoy_operator.dashboard.headers import SecurityHeaders
from convoy_operator.dashboard.log_limit import MAX_LOGS, MAX_LOGS_PER_USER, LogLimit
from convoy_operator.dashboard.metrics import DashboardMetrics
from convoy_operator.dashboard.pages import (
    cluster_objects,
    experiment,
    job,
    login,
    node,
    overview,
    serving_job,
    spot_pool,
)
from convoy_operator.dashboard.settings import AuthMode, DashboardSettings
from convoy_operator.dashboard.sockets import bind_events
from convoy_operator.dashboard.update_throttle import UpdateThrottle
from convoy_operator.gateway import ApiGateway
from convoy_operator.metrics import Metrics
from convoy_operator.run_until_first_exit import run_until_first_exit
from convoy_operator.settings import Settings

log = structlog.get_logger(__name__)

STATIC = Path(__file__).parent / "static"
RECONNECT_SECONDS = 10.0
"""Seconds that a page waits for its browser to reconnect. After that, the browser must reload the page."""
MAX_UNACKNOWLEDGED = 256
"""Maximum number of messages that are kept for a browser that reconnects.

A lost connection is detected after 22 s, and a page sends fewer messages in that time. If messages were
lost, NiceGUI would reload the page with an inline script, which the Content-Security-Policy forbids.
"""
MAX_MESSAGE = 262_144
"""Maximum size in bytes of a message from a browser."""


class Server(uvicorn.Server):
    """A uvicorn server that does not handle signals, because the dashboard does. Uvicorn would raise a
    signal again after it has stopped.
    """

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers, unlike uvicorn's own method."""
        yield


class Revalidated(StaticFiles):
    """Static files that browsers revalidate at each use. So a browser never mixes files of two versions."""

    def file_response(self, *args: Any, **given: Any) -> Response:
        """Return the file with a header that makes browsers revalidate it."""
        response = super().file_response(*args, **given)
        response.headers["cache-control"] = "no-cache"
        return response


class Dashboard:
    """All parts of one dashboard process."""

    def __init__(self, settings: DashboardSettings, client: ApiClient) -> None:
        api = Settings(qps=settings.qps, burst=settings.burst)
        counted = Metrics(package_version())
        gateway = DashboardGateway(client, api, counted)
        feed = Feed()
        self.context = Context(
            settings=settings,
            cache=DashboardCache(feed),
            feed=feed,
            throttle=UpdateThrottle(),
            api_monitor=ApiMonitor(gateway, feed.notify),
            gateway=gateway,
            event_cache=EventCache(gateway),
            # Without authentication, all users are one user, so the limit per user is the overall limit.
            log_limit=LogLimit(
                limit_each=MAX_LOGS if settings.auth_mode == AuthMode.NONE else MAX_LOGS_PER_USER
            ),
            session_resolver=SessionResolver(settings, gateway),
            metrics=DashboardMetrics(counted),
            loading=self._loading,
        )
        # The cast is safe, because reflectors use only the methods `list` and `watch` of a gateway.
        monitored = cast(ApiGateway, MonitoredGateway(gateway, self.context.api_monitor))
        self._reflectors = self.context.cache.reflectors(monitored, counted)
        connections = Connections(self._app(), 2 * settings.most_pages)
        self.server = Server(
            uvicorn.Config(
                connections,
                http=connections.protocol(),
                host=settings.pages_address,
                port=settings.port,
                log_config=None,
                access_log=False,
                # Do not let uvicorn trust a proxy's headers: only the session resolver decides which proxies
                # are trusted.
                proxy_headers=False,
                server_header=False,
                ws_max_size=MAX_MESSAGE,
                timeout_graceful_shutdown=settings.stop_seconds,
            )
        )

    def _app(self) -> ASGIApp:
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        app.mount("/static", Revalidated(directory=STATIC))
        login.register(self.context, app)
        overview.register(self.context)
        job.register(self.context)
        serving_job.register(self.context)
        experiment.register(self.context)
        node.register(self.context)
        spot_pool.register(self.context)
        cluster_objects.register(self.context)
        ui.add_head_html(f'<link rel="stylesheet" href="{STYLE}">', shared=True)
        ui.add_body_html('<script type="module" src="/static/reconnect.js"></script>', shared=True)
        ui.add_body_html("<noscript>This dashboard needs JavaScript.</noscript>", shared=True)
        ui.run_with(
            app,
            title="Convoy",
            favicon=STATIC / "convoy.svg",
            dark=None,
            language="en-US",
            binding_refresh_interval=None,
            gzip_middleware_factory=None,
            reconnect_timeout=RECONNECT_SECONDS,
            message_history_length=MAX_UNACKNOWLEDGED,
            tailwind=False,
            show_welcome_message=False,
        )
        # Handle unknown paths here: NiceGUI would create a page for each, and the page limit would not count
        # it.
        pages.add_exception_handler(404, _not_found)
        bind_events(core.sio, owner)
        hosts = self.context.settings.allowed_hosts
        guard = RequestGuard(app, self.context.session_resolver, owner, self._full, hosts)
        return GZipMiddleware(SecurityHeaders(guard), minimum_size=1000)

    def _loading(self) -> list[str]:
        return sorted(plural for plural, one in self._reflectors.items() if not one.synced.is_set())

    def _full(self, session: Session) -> bool:
        settings, user = self.context.settings, session.identity.user
        opened = list(Client.instances)
        if self.context.session_resolver.mode is AuthMode.NONE:
            return len(opened) >= settings.most_pages
        own = sum(found is not None and found.identity.user == user for found in map(owner, opened))
        return page_limit.is_reached(len(opened), own, settings.most_pages, settings.most_pages_each)

    async def run(self) -> None:
        """Run all parts until one of them ends. The server ends when `should_exit` is set."""
        settings, context = self.context.settings, self.context
        metrics = http.metrics_pages(context.metrics.registry, self._count)
        await run_until_first_exit(
            [
                self.server.serve(),
                *(reflector.run() for reflector in self._reflectors.values()),
                context.api_monitor.run(),
                context.session_resolver.run(),
                http.serve(metrics, settings.bind, settings.metrics_port),
                http.serve(http.probe_pages(self._checks()), settings.bind, settings.probe_port),
            ]
        )

    def _checks(self) -> http.Checks:
        # The dashboard is ready when it has the jobs. Pages report any other resource that cannot be watched.
        return {
            "jobs": self._reflectors[TRAINING_JOBS.plural].synced.is_set,
            "pages": lambda: self.server.started,
        }

    def _count(self) -> None:
        context = self.context
        context.metrics.clients.set(len(context.feed))
        context.metrics.sessions.set(len(context.session_resolver.sessions))
        context.metrics.watch_lag.set(context.api_monitor.lag)


def owner(client_id: str) -> Session | None:
    """Return the session of the page with this id; None if there is no such page."""
    client = Client.instances.get(client_id)
    session = client.request.scope.get(SESSION) if client is not None else None
    return session if isinstance(session, Session) else None


async def _not_found(request: Request, _: Exception) -> Response:
    return refusal(404, "this page does not exist", request.headers.get("accept", ""))


async def run(settings: DashboardSettings) -> int:
    """Run the dashboard until SIGTERM or SIGINT. Return the exit code."""
    loop = asyncio.get_running_loop()
    async with await connect(Settings()) as client:
        dashboard = Dashboard(settings, client)

        def stop() -> None:
            dashboard.server.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        try:
            await dashboard.run()
        except Exception:
            log.exception("the dashboard failed")
            return 1
        finally:
            await dashboard.context.gateway.close()
    log.info("stopped")
    return 0
