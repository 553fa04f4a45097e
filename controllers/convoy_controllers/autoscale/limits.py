"""Limits of a change: the minimum, the maximum, and the rate of change."""

from __future__ import annotations

from collections.abc import Iterable

from convoy_controllers.autoscale.arithmetic import ceil32, trunc32, wrap32
from convoy_controllers.autoscale.conditions import Condition, ConditionReason, ConditionType
from convoy_controllers.autoscale.spec import (
    Behavior,
    Policy,
    PolicyType,
    Scaling,
    ScalingRules,
    SelectPolicy,
)
from convoy_controllers.autoscale.state import ScaleEvent, State

SCALE_UP_FACTOR, SCALE_UP_AT_LEAST = 2, 4
"""Without rules of the user, one decision at most doubles the replicas, or raises them to 4."""

_MESSAGES = {
    ConditionReason.DESIRED_WITHIN_RANGE: "the number of replicas is within all limits",
    ConditionReason.SCALE_UP_LIMIT: "the metrics ask for more replicas than one step may add",
    ConditionReason.SCALE_DOWN_LIMIT: "the metrics ask for fewer replicas than one step may leave",
    ConditionReason.TOO_MANY_REPLICAS: "the metrics ask for more replicas than maxReplicas",
    ConditionReason.TOO_FEW_REPLICAS: "the metrics ask for fewer replicas than minReplicas",
}

Limited = tuple[int, ConditionReason]
"""A number of replicas within the limits, and the limit that applied."""


def limit(scaling: Scaling, state: State, present: int, wanted: int, now: float) -> tuple[int, Condition]:
    """Return the number of replicas within all limits, and the condition ScalingLimited."""
    if scaling.behavior is None:
        replicas, reason = limit_without_behavior(present, wanted, scaling.min_replicas, scaling.max_replicas)
    else:
        replicas, reason = _limit_with_behavior(scaling, scaling.behavior, state, (present, wanted), now)
    return replicas, Condition(ConditionType.SCALING_LIMITED, replicas != wanted, reason, _MESSAGES[reason])


def limit_without_behavior(present: int, wanted: int, smallest: int, largest: int) -> Limited:
    """Return the number of replicas within the limits that hold without rules of the user."""
    step = trunc32(max(float(SCALE_UP_FACTOR * present), float(SCALE_UP_AT_LEAST)))
    if wanted < smallest:
        return smallest, ConditionReason.TOO_FEW_REPLICAS
    if wanted > min(largest, step):
        reason = ConditionReason.SCALE_UP_LIMIT if largest > step else ConditionReason.TOO_MANY_REPLICAS
        return min(largest, step), reason
    return wanted, ConditionReason.DESIRED_WITHIN_RANGE


def _limit_with_behavior(
    scaling: Scaling, behavior: Behavior, state: State, counts: tuple[int, int], now: float
) -> Limited:
    present, wanted = counts
    if wanted > present:
        step = max(scale_up_limit(present, state, behavior.scale_up, now), present)
        if wanted > min(scaling.max_replicas, step):
            if scaling.max_replicas > step:
                return step, ConditionReason.SCALE_UP_LIMIT
            return scaling.max_replicas, ConditionReason.TOO_MANY_REPLICAS
    elif wanted < present:
        step = min(scale_down_limit(present, state, behavior.scale_down, now), present)
        if wanted < max(scaling.min_replicas, step):
            if scaling.min_replicas < step:
                return step, ConditionReason.SCALE_DOWN_LIMIT
            return scaling.min_replicas, ConditionReason.TOO_FEW_REPLICAS
    return wanted, ConditionReason.DESIRED_WITHIN_RANGE


def scale_up_limit(present: int, state: State, rules: ScalingRules, now: float) -> int:
    """Return the largest number of replicas that the policies allow."""
    if rules.select_policy is SelectPolicy.DISABLED:
        return present
    select = min if rules.select_policy is SelectPolicy.MIN else max
    return select(_raised(_at_start(present, state, policy, now), policy) for policy in rules.policies)


def scale_down_limit(present: int, state: State, rules: ScalingRules, now: float) -> int:
    """Return the smallest number of replicas that the policies allow."""
    if rules.select_policy is SelectPolicy.DISABLED:
        return present
    select = max if rules.select_policy is SelectPolicy.MIN else min
    return select(_lowered(_at_start(present, state, policy, now), policy) for policy in rules.policies)


def _at_start(present: int, state: State, policy: Policy, now: float) -> int:
    """Return the number of replicas at the start of the policy's period."""
    cutoff = now - policy.period_seconds
    return wrap32(present - _changed(state.scale_ups, cutoff) + _changed(state.scale_downs, cutoff))


def _changed(events: Iterable[ScaleEvent], cutoff: float) -> int:
    return sum(event.change for event in events if event.at > cutoff)


def _raised(replicas: int, policy: Policy) -> int:
    if policy.type is PolicyType.PODS:
        return wrap32(replicas + policy.value)
    # Rounded up: otherwise a small workload could never grow.
    return ceil32(float(replicas) * (1 + float(policy.value) / 100))


def _lowered(replicas: int, policy: Policy) -> int:
    if policy.type is PolicyType.PODS:
        return wrap32(replicas - policy.value)
    return trunc32(float(replicas) * (1 - float(policy.value) / 100))
