"""/metrics on one port, /healthz and /readyz on another, so that scrapes need no access to probes or back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from convoy_operator.metrics import Metrics

Checks = Mapping[str, Callable[[], bool]]
"""By name, what must hold for readiness."""


def metrics_app(metrics: Metrics, refresh: Callable[[], None]) -> web.Application:
    """Serves /metrics; `refresh` sets the gauges that are only counted when asked for."""

    async def show(request: web.Request) -> web.Response:
        refresh()
        body = generate_latest(metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/metrics", show)
    return app


def probe_app(checks: Checks) -> web.Application:
    """Serves /healthz (the event loop turns) and /readyz (all checks hold, else 503 and their names)."""

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(request: web.Request) -> web.Response:
        failing = [name for name, check in checks.items() if not check()]
        if failing:
            return web.Response(status=503, text="not ready: " + ", ".join(failing) + "\n")
        return web.Response(text="ok\n")

    app = web.Application()
    app.router.add_get("/healthz", health)
    app.router.add_get("/readyz", ready)
    return app


async def serve(app: web.Application, host: str, port: int) -> None:
    """Serves until cancelled, at all addresses when `host` is empty; OSError when the port is taken."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
