"""Policies that measure nothing: static, random, and the oracle, which knows the future."""

from __future__ import annotations

import math
import random

from convoy_controllers.autoscale.spec import SYNC_SECONDS
from convoy_workloads.simulators.autoscaling.policies.params import (
    OraclePolicy,
    RandomPolicy,
    StaticPolicy,
)
from convoy_workloads.simulators.autoscaling.policies.policy import Rates, ServiceFacts
from convoy_workloads.simulators.autoscaling.telemetry import View


class Static:
    """A fixed number of replicas."""

    metrics: tuple[str, ...] = ()

    def __init__(self, params: StaticPolicy, facts: ServiceFacts) -> None:
        self._replicas = facts.clamp(params.replicas)

    def decide(self, view: View) -> int:
        """Return the fixed number of replicas."""
        return self._replicas


class Random:
    """A random number of replicas, drawn anew after some time."""

    metrics: tuple[str, ...] = ()

    def __init__(self, params: RandomPolicy, facts: ServiceFacts) -> None:
        self._hold = params.hold_seconds
        self._facts = facts
        self._stream = random.Random(f"{facts.seed}/policy")  # noqa: S311 - must be repeatable
        self._drawn_at = -math.inf
        self._replicas = 0

    def decide(self, view: View) -> int:
        """Return the number of replicas that was drawn last."""
        if view.second - self._drawn_at >= self._hold:
            self._drawn_at = view.second
            self._replicas = self._stream.randint(self._facts.min_replicas, self._facts.max_replicas)
        return self._replicas


class Oracle:
    """Enough replicas for the largest rate until a replica created now is ready."""

    metrics: tuple[str, ...] = ()

    def __init__(self, params: OraclePolicy, facts: ServiceFacts, future: Rates) -> None:
        self._facts = facts
        self._target = params.target / 100
        self._ahead = math.ceil(facts.boot_seconds + SYNC_SECONDS)
        self._smoothed = _moving_mean(future, params.smoothing_seconds)

    def decide(self, view: View) -> int:
        """Return the number of replicas for the largest rate that comes."""
        ahead = self._smoothed[view.second : view.second + self._ahead + 1]
        needed = max(ahead, default=0.0) * self._facts.service_seconds / self._target
        return self._facts.clamp(math.ceil(needed))


def _moving_mean(values: Rates, width: int) -> list[float]:
    """Return the mean of each value and its successors, `width` in all."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    last = len(values)
    return [(sums[min(last, i + width)] - sums[i]) / (min(last, i + width) - i) for i in range(last)]
