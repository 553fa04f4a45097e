"""One decision by the rules of HorizontalPodAutoscaler v2, for a workload with a minimum above zero."""

from __future__ import annotations

from dataclasses import replace

from convoy_controllers.autoscale.conditions import (
    Condition,
    ConditionReason,
    ConditionType,
    rescaled,
)
from convoy_controllers.autoscale.decision import Decision, Reason
from convoy_controllers.autoscale.limits import limit
from convoy_controllers.autoscale.proposals import Largest, choose
from convoy_controllers.autoscale.replicas import ReplicaCalculator
from convoy_controllers.autoscale.samples import Observed
from convoy_controllers.autoscale.spec import Scaling
from convoy_controllers.autoscale.stabilize import Stabilized, stabilize
from convoy_controllers.autoscale.state import State

_READ = Condition(
    ConditionType.ABLE_TO_SCALE,
    True,
    ConditionReason.SUCCEEDED_GET_SCALE,
    "the present number of replicas is known",
)
_DISABLED = Condition(
    ConditionType.SCALING_ACTIVE,
    False,
    ConditionReason.SCALING_DISABLED,
    "the workload is set to zero replicas; set a number above zero to turn the autoscaler on",
)


def decide_horizontal(scaling: Scaling, observed: Observed, state: State, now: float) -> Decision:
    """Return the decision by the rules of HorizontalPodAutoscaler v2."""
    present = observed.spec_replicas
    state = state.started(present, now)
    if present == 0:
        message = "the workload is set to zero replicas"
        return Decision(0, 0, Reason.DISABLED, message, state, state, (_READ, _DISABLED))
    if present > scaling.max_replicas:
        message = f"{present} replicas are more than maxReplicas, {scaling.max_replicas}"
        kept = Decision(present, present, Reason.ABOVE_MAX_REPLICAS, message, state, state, (_READ,))
        return _rescaled(scaling, kept, scaling.max_replicas, now)
    if present < scaling.min_replicas:
        message = f"{present} replicas are fewer than minReplicas, {scaling.min_replicas}"
        kept = Decision(present, present, Reason.BELOW_MIN_REPLICAS, message, state, state, (_READ,))
        return _rescaled(scaling, kept, scaling.min_replicas, now)
    calculator = ReplicaCalculator(
        present, observed.status_replicas, observed.pods, scaling.tolerances(), scaling.settings, now
    )
    choice = choose(calculator, scaling.metrics, observed.readings)
    if choice.largest is None:
        kept = Decision(present, present, Reason.METRICS_FAILED, choice.condition.message, state, state)
        return replace(kept, conditions=(_READ, choice.condition), proposals=choice.proposals)
    decision = _by_metric(scaling, choice.largest, state, present, now)
    return replace(decision, proposals=choice.proposals).setting(choice.condition)


def _rescaled(scaling: Scaling, kept: Decision, replicas: int, now: float) -> Decision:
    """Return the decision `kept` with a number of replicas that shall be written."""
    state = kept.unwritten.scaled(scaling, kept.present, replicas, now)
    return replace(kept, desired=replicas, state=state).setting(rescaled(kept.present, replicas))


def _by_metric(scaling: Scaling, largest: Largest, state: State, present: int, now: float) -> Decision:
    """Return the decision for the largest proposal of the metrics."""
    wanted = max(0, largest.replicas)
    stable = stabilize(scaling, state, present, wanted, now)
    replicas, limited = limit(scaling, stable.state, present, stable.replicas, now)
    reason, message = _explain(largest, stable, limited, present, replicas)
    conditions = (stable.condition, limited)
    kept = Decision(present, present, reason, message, stable.state, stable.state, conditions)
    return kept if replicas == present else _rescaled(scaling, kept, replicas, now)


def _explain(
    largest: Largest, stable: Stabilized, limited: Condition, present: int, replicas: int
) -> tuple[Reason, str]:
    """Return the reason of a number of replicas, and a sentence for users."""
    name, wanted = largest.metric.name, max(0, largest.replicas)
    change = f"{present} replicas become {replicas}"
    if replicas == present == wanted:
        return Reason.AT_TARGET, f"the metrics ask for the present {present} replicas"
    if replicas == present:
        held = stable.replicas != wanted
        reason, why = (Reason.STABILIZED, stable.condition) if held else (Reason.LIMITED, limited)
        return reason, f"{name} asks for {wanted} replicas, {present} stay: {why.message}"
    if replicas < present:
        return Reason.BELOW_TARGET, f"all metrics are below their targets: {change}"
    if wanted <= present:
        return Reason.STABILIZED, f"{stable.condition.message}: {change}"
    return Reason.ABOVE_TARGET, f"{name} is above its target: {change}"
