"""The proposals of several metrics, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convoy_controllers.autoscale.conditions import FAILED_GET, Condition, ConditionReason, ConditionType
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
class Choice:
    """The choice among the proposals of all metrics."""

    proposals: tuple[Proposal, ...]
    replicas: int | None
    """The largest proposal. None if no metric works, or if one has failed and the others would shrink the
    workload.
    """
    metric: Metric | None
    """Metric of the largest proposal."""
    condition: Condition
    """The condition ScalingActive."""

    @property
    def failures(self) -> int:
        """The number of metrics that failed."""
        return sum(proposal.replicas is None for proposal in self.proposals)


def choose(calculator: ReplicaCalculator, metrics: Sequence[Metric], readings: Sequence[Reading]) -> Choice:
    """Return the largest proposal of the metrics."""
    proposals = tuple(
        Proposal(metric, _calculate(calculator, metric, reading))
        for metric, reading in zip(metrics, readings, strict=True)
    )
    largest = 0
    chosen: Metric | None = None
    failed: list[tuple[Metric, Failure]] = []
    for proposal in proposals:
        if isinstance(proposal.result, Failure):
            failed.append((proposal.metric, proposal.result))
        elif largest == 0 or proposal.result.replicas > largest:
            largest, chosen = proposal.result.replicas, proposal.metric
    if failed and (chosen is None or largest < calculator.spec_replicas):
        return Choice(proposals, None, None, _inactive(failed))
    return Choice(
        proposals,
        largest,
        chosen,
        Condition(
            ConditionType.SCALING_ACTIVE,
            True,
            ConditionReason.VALID_METRIC_FOUND,
            f"{chosen.name} asks for {largest} replicas" if chosen else "there are no metrics",
        ),
    )


def _calculate(calculator: ReplicaCalculator, metric: Metric, reading: Reading) -> Calculation | Failure:
    try:
        return calculator.calculate(metric, reading)
    except MetricError as error:
        return error.failure


def _inactive(failed: list[tuple[Metric, Failure]]) -> Condition:
    metric, failure = failed[0]
    more = f" ({len(failed)} metrics failed)" if len(failed) > 1 else ""
    return Condition(
        ConditionType.SCALING_ACTIVE,
        False,
        FAILED_GET[metric.type],
        f"metric {metric.name}: {failure.message}{more}",
    )
