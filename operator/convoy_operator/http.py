"""The operator's HTTP pages: /metrics on one port, /healthz and /readyz on another.

Two ports, so that a network policy can allow scrapes without allowing probes, and the other way round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry

from convoy_agents.wire import http

Pages = Mapping[str, http.Page]
Checks = Mapping[str, Callable[[], bool]]
"""Readiness checks by name."""


def metrics_pages(registry: CollectorRegistry, refresh: Callable[[], None]) -> Pages:
    """Return the /metrics page. `refresh` sets the gauges that are computed at a scrape."""
    return {"/metrics": http.metrics(registry, refresh)}


def probe_pages(checks: Checks) -> Pages:
    """Return /healthz (200 while the event loop runs) and /readyz (503 with the names of the failed
    checks).
    """

    def missing() -> str:
        return ", ".join(name for name, check in checks.items() if not check())

    return {"/healthz": http.healthy, "/readyz": http.ready(missing)}


async def serve(pages: Pages, host: str, port: int) -> None:
    """Serve until cancelled, on all addresses if `host` is empty. Raise OSError if the port is taken."""
    server = http.HttpServer(pages)
    await server.start(port, host)
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop()
