"""The parts of the dashboard that all pages share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convoy_operator.dashboard.api_monitor import ApiMonitor
from convoy_operator.dashboard.auth.session_resolver import SessionResolver
from convoy_operator.dashboard.cache import DashboardCache
from convoy_operator.dashboard.event_cache import EventCache
from convoy_operator.dashboard.feed import Feed
from convoy_operator.dashboard.gateway import DashboardGateway
from convoy_operator.dashboard.log_limit import LogLimit
from convoy_operator.dashboard.metrics import DashboardMetrics
from convoy_operator.dashboard.settings import DashboardSettings
from convoy_operator.dashboard.update_throttle import UpdateThrottle


@dataclass(frozen=True, slots=True)
class Context:
    """The objects that all pages of one dashboard process share."""

    settings: DashboardSettings
    cache: DashboardCache
    feed: Feed
    throttle: UpdateThrottle
    api_monitor: ApiMonitor
    gateway: DashboardGateway
    event_cache: EventCache
    log_limit: LogLimit
    session_resolver: SessionResolver
    metrics: DashboardMetrics
    loading: Callable[[], list[str]]
    """Return the names of the resources whose first LIST has not ended yet."""
