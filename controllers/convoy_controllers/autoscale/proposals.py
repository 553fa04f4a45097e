"""The proposals of several metrics, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convoy_controllers.autoscale.conditions import (
    Condition,
    ConditionReason,
    ConditionType,
    metric_failed,
)
from convoy_controllers.autoscale.failure import Failure, MetricError
from convoy_controllers.autoscale.replicas import Calculation, ReplicaCalculator
from convoy_controllers.autoscale.samples import Reading
from convoy_controllers.autoscale.spec import Metric


@dataclass(frozen=True, slots=True)
class Proposal:
    """The number of replicas that one metric asks for, or the failure to compute it."""

    metric: Metric
    result: Calculation | Failure

    @property
    def replicas(self) -> int | None:
        """The number of replicas; None if the metric failed."""
        return None if isinstance(self.result, Failure) else self.result.replicas


@dataclass(frozen=True, slots=True)
class Largest:
    """The metric that asks for the most replicas, and this number."""

    metric: Metric
    replicas: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice among the proposals of all metrics."""

    proposals: tuple[Proposal, ...]
    largest: Largest | None
    """None if no metric works, or if one has failed and the others would shrink the workload."""
    condition: Condition
    """The condition ScalingActive."""


def choose(calculator: ReplicaCalculator, metrics: Sequence[Metric], readings: Sequence[Reading]) -> Choice:
    """Return the largest proposal of the metrics. There is at least one metric."""
    proposals = tuple(
        Proposal(metric, _calculate(calculator, metric, reading))
        for metric, reading in zip(metrics, readings, strict=True)
    )
    largest: Largest | None = None
    failed: list[tuple[Metric, Failure]] = []
    for proposal in proposals:
        if isinstance(proposal.result, Failure):
            failed.append((proposal.metric, proposal.result))
        # As upstream, a proposal of 0 gives way to any later one, also to one below 0.
        elif largest is None or largest.replicas == 0 or proposal.result.replicas > largest.replicas:
            largest = Largest(proposal.metric, proposal.result.replicas)
    if largest is None or (failed and largest.replicas < calculator.spec_replicas):
        return Choice(proposals, None, _inactive(failed))
    message = f"{largest.metric.name} asks for {largest.replicas} replicas"
    found = Condition(ConditionType.SCALING_ACTIVE, True, ConditionReason.VALID_METRIC_FOUND, message)
    return Choice(proposals, largest, found)


def _calculate(calculator: ReplicaCalculator, metric: Metric, reading: Reading) -> Calculation | Failure:
    try:
        return calculator.calculate(metric, reading)
    except MetricError as error:
        return error.failure


def _inactive(failed: list[tuple[Metric, Failure]]) -> Condition:
    metric, failure = failed[0]
    more = f" ({len(failed)} metrics failed)" if len(failed) > 1 else ""
    return metric_failed(metric, f"{failure.message}{more}")
