"""Scale to zero, with the semantics of KEDA.

A metric is active while its value is above its activation threshold. Only activity decides between zero and
one replica; above that the rules of HorizontalPodAutoscaler hold. The workload goes to zero, from whatever
number, once no metric was active and no request was served for `Scaling.cooldown_seconds`. It leaves zero at
once. A metric whose value is not known keeps the workload above zero.

Source: kedacore/keda, pkg/scaling/executor/scale_scaledobjects.go (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from convoy_controllers.autoscale.conditions import (
    Condition,
    ConditionReason,
    ConditionType,
    metric_failed,
    rescaled,
)
from convoy_controllers.autoscale.decision import Decision, Reason
from convoy_controllers.autoscale.horizontal import decide_horizontal
from convoy_controllers.autoscale.samples import Observed, Reading, Unavailable
from convoy_controllers.autoscale.spec import Metric, MetricType, Scaling
from convoy_controllers.autoscale.state import State

_NEVER_ACTIVE = frozenset({MetricType.RESOURCE, MetricType.CONTAINER_RESOURCE})
"""Types of metrics that say nothing about demand at zero replicas."""


def decide_zero(scaling: Scaling, observed: Observed, state: State, now: float) -> Decision:
    """Return the decision for a workload that may scale to zero (`minReplicas: 0`)."""
    active = _active_metric(scaling, observed)
    active_at = now if active is not None or state.active_at is None else state.active_at
    state = replace(state, active_at=max(active_at, observed.worked_at))
    if observed.spec_replicas == 0:
        return _at_zero(scaling, observed, state, active, now)
    decision = decide_horizontal(replace(scaling, min_replicas=1), observed, state, now)
    known = all(_failure(observed, *one) is None for one in _demand(scaling, observed))
    idle_seconds = now - max(active_at, observed.worked_at)
    if active is not None or not known or idle_seconds <= scaling.cooldown_seconds:
        return decision.setting(_condition(False))
    present = observed.spec_replicas
    return Decision(
        present,
        0,
        Reason.IDLE,
        f"no metric was above its activation threshold for {scaling.cooldown_seconds:g} s: "
        f"{present} replicas become 0",
        replace(decision.unwritten, at_zero=True),
        decision.unwritten,
        decision.conditions,
        decision.proposals,
    ).setting(rescaled(present, 0), _condition(True))


def leave_zero(scaling: Scaling, state: State, now: float) -> Decision:
    """Return the decision for a workload at zero whose minimum has been raised since."""
    state = state.started(0, now)
    return Decision(
        0,
        scaling.min_replicas,
        Reason.BELOW_MIN_REPLICAS,
        f"0 replicas are fewer than minReplicas, {scaling.min_replicas}",
        replace(state, at_zero=False),
        state,
        (rescaled(0, scaling.min_replicas), _condition(False)),
    )


def _at_zero(
    scaling: Scaling, observed: Observed, state: State, active: Metric | None, now: float
) -> Decision:
    state = replace(state.started(0, now), at_zero=True)
    if active is not None:
        return Decision(
            0,
            1,
            Reason.ACTIVATED,
            f"{active.name} is above its activation threshold: 0 replicas become 1",
            replace(state, at_zero=False),
            state,
            (rescaled(0, 1), _found(f"{active.name} is above its activation threshold"), _condition(False)),
        )
    idle = _found("no metric is above its activation threshold")
    for metric, reading in _demand(scaling, observed):
        if (failure := _failure(observed, metric, reading)) is not None:
            idle = metric_failed(metric, failure)
            break
    return Decision(0, 0, Reason.IDLE, idle.message, state, state, (idle, _condition(True)))


def _demand(scaling: Scaling, observed: Observed) -> Iterator[tuple[Metric, Reading]]:
    """Yield the metrics that show demand, with their values."""
    for metric, reading in zip(scaling.metrics, observed.readings, strict=True):
        if metric.type not in _NEVER_ACTIVE:
            yield metric, reading


def _active_metric(scaling: Scaling, observed: Observed) -> Metric | None:
    return next(
        (metric for metric, reading in _demand(scaling, observed) if _value(reading) > metric.activation),
        None,
    )


def _value(reading: Reading) -> int:
    """Return the value of a metric, summed over all pods, in thousandths."""
    if isinstance(reading, Unavailable):
        return 0
    return sum(reading) if isinstance(reading, tuple) else sum(one.value for one in reading.values())


def _failure(observed: Observed, metric: Metric, reading: Reading) -> str | None:
    """Return the reason why the value of a metric is not known; None if it is known."""
    if isinstance(reading, Unavailable):
        return reading.message
    if metric.type is not MetricType.PODS:
        return None if reading else "it has no value"
    unknown = [pod.name for pod in observed.pods if pod.serves and pod.name not in reading]
    return f"pod {unknown[0]} is ready but has no sample" if unknown else None


def _found(message: str) -> Condition:
    return Condition(ConditionType.SCALING_ACTIVE, True, ConditionReason.VALID_METRIC_FOUND, message)


def _condition(at_zero: bool) -> Condition:
    if at_zero:
        message = "no metric is active, so the autoscaler keeps the workload at zero"
        return Condition(ConditionType.SCALED_TO_ZERO, True, ConditionReason.SCALED_TO_ZERO, message)
    message = "the workload has replicas"
    return Condition(ConditionType.SCALED_TO_ZERO, False, ConditionReason.NOT_SCALED_TO_ZERO, message)
