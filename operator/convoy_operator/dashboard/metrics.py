"""The dashboard's own metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from convoy_operator.metrics import Metrics

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class DashboardMetrics:
    """All metrics of one dashboard process, in a registry of their own."""

    def __init__(self, api: Metrics) -> None:
        """`api`: what the client and the reflectors count in; of them only what they set is shown."""
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        for collector in (
            api.build_info,
            api.api_requests,
            api.api_seconds,
            api.api_wait_seconds,
            api.relists,
        ):
            registry.register(collector)
        self.clients = Gauge("convoy_dashboard_clients", "Pages that are open.", registry=registry)
        self.sessions = Gauge("convoy_dashboard_sessions", "Sessions that are not over.", registry=registry)
        self.updates = Counter(
            "convoy_dashboard_updates", "Times that an open page was brought up to date.", registry=registry
        )
        self.failures = Counter(
            "convoy_dashboard_update_failures",
            "Times that an open page could not be brought up to date: see the log.",
            registry=registry,
        )
        self.update_seconds = Histogram(
            "convoy_dashboard_update_seconds",
            "From a change's arrival to when a page was told of it.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.logins = Counter(
            "convoy_dashboard_logins",
            "Tries to log in, by outcome: accepted, refused, limited or failed.",
            ["outcome"],
            registry=registry,
        )
        self.watch_lag = Gauge(
            "convoy_dashboard_watch_lag_seconds",
            "Since the API server was last heard from.",
            registry=registry,
        )
        for outcome in ("accepted", "refused", "limited", "failed"):
            self.logins.labels(outcome)
