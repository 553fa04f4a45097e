"""The interface of a policy, and the facts about the service that every policy may know."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from convoy_workloads.simulators.autoscaling.telemetry import CPU, View


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """The facts about the service that its operator knows."""

    min_replicas: int
    max_replicas: int
    service_seconds: float
    boot_seconds: float
    seed: int
    """Seed for the random choices of a policy."""

    def clamp(self, replicas: int) -> int:
        """Return the number of replicas within the limits."""
        return max(self.min_replicas, min(self.max_replicas, replicas))


class ReplicaPolicy(Protocol):
    """A policy in one run. It may keep a memory between decisions."""

    metrics: tuple[str, ...]
    """Names of the metrics whose samples it needs."""

    def decide(self, view: View) -> int:
        """Return the number of replicas that the service shall have."""
        ...


def utilization(view: View) -> float | None:
    """Return the mean use of a replica's core in percent; None without a measurement. `CPU` must be among the
    policy's metrics.
    """
    samples = view.samples[CPU]
    if not samples:
        return None
    return sum(one.value for one in samples.values()) / len(samples) / 10


@dataclass(slots=True)
class Hold:
    """The largest recommendation of the last `seconds`: it keeps replicas after a short fall of the rate."""

    seconds: float
    _kept: deque[tuple[int, int]] = field(default_factory=deque)

    def largest(self, second: int, replicas: int) -> int:
        """Record a recommendation, and return the largest recent one."""
        self._kept.append((second, replicas))
        while self._kept[0][0] < second - self.seconds:
            self._kept.popleft()
        return max(number for _, number in self._kept)


Rates = Sequence[float]
"""Requests that arrive in each second of the run."""
