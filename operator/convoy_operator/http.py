"""/metrics on one port, /healthz and /readyz on another, so that scrapes need no access to probes or back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry

from convoy_agents.wire import http

Pages = Mapping[str, http.Page]
Checks = Mapping[str, Callable[[], bool]]
"""By name, what must hold for readiness."""


def metrics_pages(registry: CollectorRegistry, refresh: Callable[[], None]) -> Pages:
    """/metrics; `refresh` sets the gauges that are only counted when asked for."""
    return {"/metrics": http.metrics(registry, refresh)}


def probe_pages(checks: Checks) -> Pages:
    """/healthz (the event loop turns) and /readyz (all checks hold, else 503 and their names)."""

    def missing() -> str:
        return ", ".join(name for name, check in checks.items() if not check())

    return {"/healthz": http.healthy, "/readyz": http.ready(missing)}


async def serve(pages: Pages, host: str, port: int) -> None:
    """Serves until cancelled, at all addresses when `host` is empty; OSError when the port is taken."""
    server = http.HttpServer(pages)
    await server.start(port, host)
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop()
