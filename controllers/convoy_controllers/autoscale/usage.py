"""The ratio of usage to target, for metrics with one sample for each pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from convoy_controllers.autoscale.arithmetic import quotient, ratio, wrap32, wrap64
from convoy_controllers.autoscale.failure import FailureKind, MetricError


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a workload's pods."""

    ratio: float
    """Usage divided by the target."""
    current: int
    """Percent for a target of type Utilization, otherwise the average in thousandths."""
    average: int
    """Average over the pods, in thousandths."""


class Meter(Protocol):
    """A rule that compares samples with a target."""

    def measure(self, values: Mapping[str, int]) -> Usage:
        """Return the usage of pods with these values. There is at least one."""

    def full(self, pod: str) -> int:
        """Return the value of a pod without a sample, assumed when the workload would shrink."""


@dataclass(frozen=True, slots=True)
class AverageValue:
    """A target for the average value, in thousandths."""

    target: int

    def measure(self, values: Mapping[str, int]) -> Usage:
        """Return the average and its ratio to the target."""
        average = quotient(wrap64(sum(values.values())), len(values))
        return Usage(ratio(float(average), float(self.target)), average, average)

    def full(self, pod: str) -> int:
        """Return the target itself."""
        return self.target


@dataclass(frozen=True, slots=True)
class Utilization:
    """A target for the usage in percent of the requests."""

    target: int
    requests: Mapping[str, int]
    """Request of each pod, by name of the pod, in thousandths."""

    def measure(self, values: Mapping[str, int]) -> Usage:
        """Return the utilization in whole percent and its ratio to the target. Values of pods that have no
        request do not count.
        """
        counted = [(value, self.requests[pod]) for pod, value in values.items() if pod in self.requests]
        used = wrap64(sum(value for value, _ in counted))
        requested = wrap64(sum(request for _, request in counted))
        if requested == 0:
            raise MetricError(
                FailureKind.NO_REQUESTS,
                "the requests of the sampled pods add up to 0; set resources.requests of the containers",
            )
        percent = wrap32(quotient(wrap64(used * 100), requested))
        return Usage(ratio(float(percent), float(self.target)), percent, quotient(used, len(counted)))

    def full(self, pod: str) -> int:
        """Return the whole request, or the target's share of it if the target is above 100 %."""
        return quotient(wrap64(self.requests[pod] * max(100, self.target)), 100)
