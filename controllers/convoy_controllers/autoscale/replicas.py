"""The number of replicas that one metric asks for."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_controllers.autoscale.arithmetic import (
    MAX_INT32,
    MAX_INT64,
    ceil32,
    ceil64,
    ratio,
    wrap64,
)
from convoy_controllers.autoscale.failure import FailureKind, MetricError
from convoy_controllers.autoscale.groups import group_pods
from convoy_controllers.autoscale.requests import requests_of
from convoy_controllers.autoscale.samples import Pod, Reading, Samples, Unavailable, Values
from convoy_controllers.autoscale.spec import (
    PER_POD,
    Metric,
    MetricType,
    Settings,
    TargetType,
    Tolerances,
)
from convoy_controllers.autoscale.usage import AverageValue, Meter, Utilization


@dataclass(frozen=True, slots=True)
class Calculation:
    """The result for one metric."""

    replicas: int
    current: int
    """Present value in the unit of the target: percent, or thousandths of the metric's unit."""
    average: int | None = None
    """Average over the pods in thousandths, for a target of type Utilization only."""


@dataclass(frozen=True, slots=True)
class ReplicaCalculator:
    """Computes numbers of replicas for one workload at one time."""

    spec_replicas: int
    status_replicas: int
    pods: tuple[Pod, ...]
    tolerances: Tolerances
    settings: Settings
    now: float

    def calculate(self, metric: Metric, reading: Reading) -> Calculation:
        """Return the number of replicas for a metric. Raise MetricError if there is none."""
        if isinstance(reading, Unavailable):
            raise MetricError(FailureKind.UNAVAILABLE, reading.message)
        if metric.type in PER_POD:
            if isinstance(reading, tuple):
                raise TypeError(f"metric {metric.name} of type {metric.type} needs one sample for each pod")
            return self._from_samples(metric, reading)
        if not isinstance(reading, tuple):
            raise TypeError(f"metric {metric.name} of type {metric.type} needs values, not samples of pods")
        if not reading:
            raise MetricError(FailureKind.UNAVAILABLE, f"metric {metric.name} has no value")
        if metric.type is MetricType.OBJECT:
            return self._from_object(metric, reading[0])
        return self._from_external(metric, reading)

    def _from_samples(self, metric: Metric, samples: Samples) -> Calculation:
        self._need_pods()
        resource = "" if metric.type is MetricType.PODS else metric.name
        grouped = group_pods(self.pods, samples, resource, self.settings, self.now)
        skipped = grouped.ignored | grouped.unready
        values = {name: sample.value for name, sample in samples.items() if name not in skipped}
        if not values:
            raise MetricError(
                FailureKind.NO_SAMPLES,
                f"no ready pod has a sample of {metric.name}; the pods may still be starting",
            )
        meter = self._meter(metric)
        usage = meter.measure(values)
        found = usage.ratio
        average = usage.average if metric.target.type is TargetType.UTILIZATION else None

        def result(replicas: int) -> Calculation:
            return Calculation(replicas, usage.current, average)

        add_unready = bool(grouped.unready) and found > 1.0
        if not add_unready and not grouped.missing:
            if self.tolerances.allow(found):
                return result(self.spec_replicas)
            return result(ceil32(found * float(grouped.ready)))
        # Pods without a usable sample damp the change: they count as full when the workload would shrink and
        # as idle when it would grow.
        if found < 1.0:
            values.update((name, meter.full(name)) for name in grouped.missing)
        elif found > 1.0:
            values.update((name, 0) for name in grouped.missing)
        if add_unready:
            values.update((name, 0) for name in grouped.unready)
        return result(self._damped(found, meter.measure(values).ratio, len(values)))

    def _damped(self, first: float, second: float, pods: int) -> int:
        """Return the number of replicas by the ratio `second`, which includes assumed values. It never
        reverses the direction of the ratio `first`, which does not.
        """
        present = self.spec_replicas
        if self.tolerances.allow(second) or (first < 1.0 < second) or (second < 1.0 < first):
            return present
        replicas = ceil32(second * float(pods))
        if (second < 1.0 and replicas > present) or (second > 1.0 and replicas < present):
            return present
        return replicas

    def _meter(self, metric: Metric) -> Meter:
        target = metric.target
        if target.type is TargetType.UTILIZATION:
            return Utilization(target.value, requests_of(self.pods, metric.name, metric.container))
        return AverageValue(target.value)

    def _from_object(self, metric: Metric, value: int) -> Calculation:
        target = float(metric.target.value)
        if metric.target.type is TargetType.VALUE:
            return Calculation(self._by_ready_pods(ratio(float(value), target)), value)
        replicas = self.status_replicas
        if not self.tolerances.allow(ratio(float(value), target * float(replicas))):
            replicas = ceil32(ratio(float(value), target))
        return Calculation(replicas, ceil64(ratio(float(value), float(self.status_replicas))))

    def _from_external(self, metric: Metric, values: Values) -> Calculation:
        target = float(metric.target.value)
        if metric.target.type is TargetType.VALUE:
            usage = _saturated_sum(values)
            return Calculation(self._by_ready_pods(ratio(float(usage), target)), usage)
        usage = _sum_until_negative(values)
        replicas = self.status_replicas
        if not self.tolerances.allow(ratio(float(usage), target * float(replicas))):
            wanted = ratio(float(usage), target)
            replicas = MAX_INT32 if wanted > MAX_INT32 else ceil32(wanted)
        if float(usage) < float(MAX_INT64):
            usage = ceil64(ratio(float(usage), float(self.status_replicas)))
        return Calculation(replicas, usage)

    def _by_ready_pods(self, usage_ratio: float) -> int:
        if self.spec_replicas == 0:
            return ceil32(usage_ratio)
        if self.tolerances.allow(usage_ratio):
            return self.spec_replicas
        self._need_pods()
        replicas = usage_ratio * float(sum(pod.serves for pod in self.pods))
        return MAX_INT32 if replicas > MAX_INT32 else ceil32(replicas)

    def _need_pods(self) -> None:
        if not self.pods:
            raise MetricError(FailureKind.NO_PODS, "the workload has no pods")


def _saturated_sum(values: Values) -> int:
    total = 0
    for value in values:
        if value > 0 and total > MAX_INT64 - value:
            return MAX_INT64
        total = wrap64(total + value)
    return total


def _sum_until_negative(values: Values) -> int:
    """Return the sum, or the largest integer once the sum is negative: Kubernetes reads that as an
    overflow.
    """
    total = 0
    for value in values:
        total = wrap64(total + value)
        if total < 0:
            return MAX_INT64
    return total
