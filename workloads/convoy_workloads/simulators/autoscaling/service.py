"""The queue of the simulated service: a fluid that is served in the order of its arrival."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

_EPSILON = 1e-9
"""Amount of fluid that is too small to count."""


@dataclass(slots=True)
class _Batch:
    """The requests that arrived in one second and still wait."""

    second: int
    size: float
    """Number of requests that arrived."""
    left: float
    """Number of requests that wait."""


@dataclass(frozen=True, slots=True)
class Served:
    """A share of requests with the same latency."""

    latency: float
    count: float


@dataclass(slots=True)
class Service:
    """The queue and the latencies of all requests."""

    service_seconds: float
    timeout_seconds: float
    """Seconds of waiting after which a request is lost."""
    served: list[Served] = field(default_factory=list)
    lost: float = 0.0
    waiting: float = 0.0
    """Number of requests that wait at the end of the last tick."""
    _queue: deque[_Batch] = field(default_factory=deque)

    def tick(self, second: int, arrived: int, replicas: int, share: float) -> float:
        """Serve requests for one second. Return the number of requests that were served.

        `share` is the fraction of each replica's processor time that the service gets.
        """
        if arrived:
            self._queue.append(_Batch(second, arrived, arrived))
        self._drop(second)
        capacity = replicas * share / self.service_seconds
        latency = self.service_seconds / share
        used = 0.0
        while self._queue and capacity - used > _EPSILON:
            batch = self._queue[0]
            count = min(batch.left, capacity - used)
            arrival = batch.second + (batch.size - batch.left + count / 2) / batch.size
            start = second + (used + count / 2) / capacity
            self.served.append(Served(max(0.0, start - arrival) + latency, count))
            used += count
            batch.left -= count
            if batch.left <= _EPSILON:
                self._queue.popleft()
        self.waiting = math.fsum(batch.left for batch in self._queue)
        return used

    def _drop(self, second: int) -> None:
        """Give up the requests that have waited too long."""
        while self._queue and second - self._queue[0].second >= self.timeout_seconds:
            self.lost += self._queue.popleft().left

    @property
    def empty(self) -> bool:
        """True if no request waits."""
        return not self._queue


def late(service: Service, deadline: float) -> float:
    """Return the number of requests above the deadline. Lost requests count as late."""
    return math.fsum(one.count for one in service.served if one.latency > deadline) + service.lost


def quantile(service: Service, fraction: float) -> float | None:
    """Return a quantile of the latency of all requests; None if it falls on a lost request, whose latency is
    unknown.
    """
    ordered = sorted(service.served, key=lambda one: one.latency)
    total = math.fsum(one.count for one in ordered) + service.lost
    reached, wanted = 0.0, fraction * total - _EPSILON
    for one in ordered:
        reached += one.count
        if reached >= wanted:
            return one.latency
    return None if service.lost else 0.0
