"""What every page needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convoy_operator.dashboard.auth.door import Door
from convoy_operator.dashboard.feed import Feed
from convoy_operator.dashboard.gateway import DashboardGateway
from convoy_operator.dashboard.metrics import DashboardMetrics
from convoy_operator.dashboard.pace import Pace
from convoy_operator.dashboard.past import Past
from convoy_operator.dashboard.presence import Presence
from convoy_operator.dashboard.seats import Seats
from convoy_operator.dashboard.settings import DashboardSettings
from convoy_operator.dashboard.world import World


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of one dashboard process."""

    settings: DashboardSettings
    world: World
    feed: Feed
    pace: Pace
    presence: Presence
    gateway: DashboardGateway
    past: Past
    seats: Seats
    door: Door
    metrics: DashboardMetrics
    loading: Callable[[], list[str]]
    """The resources that have not been listed yet."""
