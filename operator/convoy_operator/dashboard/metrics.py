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
        """`api` holds the metrics of the API client and of the reflectors. The dashboard exports those of
        them that it uses.
        """
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
        self.clients = Gauge("convoy_dashboard_clients", "Open pages of the dashboard.", registry=registry)
        self.sessions = Gauge("convoy_dashboard_sessions", "Active sessions.", registry=registry)
        self.updates = Counter("convoy_dashboard_updates", "Updates of open pages.", registry=registry)
        self.failures = Counter(
            "convoy_dashboard_update_failures",
            "Failed updates of open pages; the log has the errors.",
            registry=registry,
        )
        self.update_seconds = Histogram(
            "convoy_dashboard_update_seconds",
            "Time from the arrival of a change to the update of a page.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.logins = Counter(
            "convoy_dashboard_logins",
            "Login attempts by outcome: accepted, refused, limited or failed.",
            ["outcome"],
            registry=registry,
        )
        self.watch_lag = Gauge(
            "convoy_dashboard_watch_lag_seconds",
            "Time since the last answer of the API server.",
            registry=registry,
        )
        for outcome in ("accepted", "refused", "limited", "failed"):
            self.logins.labels(outcome)
