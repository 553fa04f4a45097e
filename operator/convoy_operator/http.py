"""The operator's HTTP pages: /metrics on one port, /healthz and /readyz on another.

There are two ports so that a network policy can allow scrapes and probes independently of each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry

from convoy_agents.wire import http

Pages = Mapping[str, http.Page]
Checks = Mapping[str, Callable[[], bool]]
"""Readiness checks by name. A check returns True if the replica is ready."""


def metrics_pages(registry: CollectorRegistry, refresh: Callable[[], None]) -> Pages:
    """Return the page /metrics. `refresh` is called before each scrape to set the gauges."""
    return {"/metrics": http.metrics(registry, refresh)}


def probe_pages(checks: Checks) -> Pages:
    """Return the pages /healthz and /readyz. /healthz responds with 200 while the event loop runs. /readyz
    responds with 503 and the names of the failed checks.
    """

    def missing() -> str:
        return ", ".join(name for name, check in checks.items() if not check())

    return {"/healthz": http.healthy, "/readyz": http.ready(missing)}


async def serve(pages: Pages, host: str, port: int) -> None:
    """Serve the pages until cancelled, on all addresses if `host` is empty. Raises OSError if the port is
    in use.
    """
    server = http.HttpServer(pages)
    await server.start(port, host)
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop()
