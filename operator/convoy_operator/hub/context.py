"""The dependencies that all parts of the hub share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from convoy_controllers.keys import Key
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.gateway import ApiGateway
from convoy_operator.metrics import Metrics
from convoy_operator.queue import WorkQueue
from convoy_operator.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class HubContext:
    """The cluster cache, the queue, the API gateway, the metrics, the settings and the clocks."""

    cache: ClusterCache
    queue: WorkQueue[Key]
    gateway: ApiGateway
    metrics: Metrics
    settings: Settings
    clock: Callable[[], float] = time.monotonic
    """Function that returns the monotonic time in seconds."""
    wall: Callable[[], float] = time.time
    """Function that returns the Unix time in seconds."""
