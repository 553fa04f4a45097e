"""Tests of stabilization, of limits and of the events that limits count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controllers.autoscale.cases import NOW, Case, cases, policies_of

from convoy_controllers.autoscale.conditions import ConditionReason, ConditionType
from convoy_controllers.autoscale.limits import (
    limit,
    limit_without_behavior,
    scale_down_limit,
    scale_up_limit,
)
from convoy_controllers.autoscale.spec import (
    SCALE_DOWN,
    SCALE_UP,
    Behavior,
    Policy,
    PolicyType,
    Scaling,
    ScalingRules,
    SelectPolicy,
)
from convoy_controllers.autoscale.stabilize import stabilize
from convoy_controllers.autoscale.state import Recommendation, ScaleEvent, State


def spread(changes: list[int]) -> tuple[ScaleEvent, ...]:
    """Return events that are spread evenly over the last 120 s."""
    step = 120 / len(changes) if changes else 0
    return tuple(ScaleEvent(one, NOW - 120 + step * (i + 0.5)) for i, one in enumerate(changes))


def rules(found: list[list[Any]] | None, default: ScalingRules) -> ScalingRules:
    return default if found is None else ScalingRules(policies_of(found))


@pytest.mark.parametrize("case", cases("rate"))
def test_limits_as_upstream(case: Case) -> None:
    least, most = case["range"]
    behavior = Behavior(rules(case.get("up"), SCALE_UP), rules(case.get("down"), SCALE_DOWN))
    state = State(scale_ups=spread(case.get("ups", [])), scale_downs=spread(case.get("downs", [])))
    scaling = Scaling(most, least, behavior=behavior)
    replicas, condition = limit(scaling, state, case["present"], case["wanted"], NOW)
    assert (replicas, condition.reason) == (case["want"], case["reason"])
    assert condition.type is ConditionType.SCALING_LIMITED
    assert condition.status is (replicas != case["wanted"])


@pytest.mark.parametrize(
    ("present", "wanted", "least", "most", "expected", "reason"),
    [
        (5, 7, 3, 8, 7, ConditionReason.DESIRED_WITHIN_RANGE),
        (3, 1, 2, 8, 2, ConditionReason.TOO_FEW_REPLICAS),
        (1, 0, 0, 10, 0, ConditionReason.DESIRED_WITHIN_RANGE),
        (20, 1000, 1, 10, 10, ConditionReason.TOO_MANY_REPLICAS),
        (3, 1000, 1, 2000, 6, ConditionReason.SCALE_UP_LIMIT),
        (1, 1000, 1, 2000, 4, ConditionReason.SCALE_UP_LIMIT),
    ],
)
def test_limits_without_behavior_as_upstream(
    present: int, wanted: int, least: int, most: int, expected: int, reason: ConditionReason
) -> None:
    """As TestConvertDesiredReplicasWithRules upstream; the last row is the minimum of 4 in one step."""
    assert limit_without_behavior(present, wanted, least, most) == (expected, reason)


TWO = (Policy(PolicyType.PODS, 2, 60), Policy(PolicyType.PERCENT, 50, 60))


def test_the_smaller_policy_can_be_selected() -> None:
    """As TestCalculateScaleUpLimitWithScalingRules and TestCalculateScaleDownLimitWithBehaviors upstream."""
    smallest = ScalingRules(TWO, SelectPolicy.MIN)
    assert scale_up_limit(1, State(), smallest, NOW) == 2
    assert scale_down_limit(5, State(), smallest, NOW) == 3


def test_a_direction_can_be_disabled() -> None:
    off = ScalingRules(TWO, SelectPolicy.DISABLED)
    scaling = Scaling(100, behavior=Behavior(off, off))
    for wanted, reason in ((20, ConditionReason.SCALE_UP_LIMIT), (1, ConditionReason.SCALE_DOWN_LIMIT)):
        replicas, condition = limit(scaling, State(), 7, wanted, NOW)
        assert (replicas, condition.reason) == (7, reason)


def test_an_event_counts_until_it_is_as_old_as_the_period() -> None:
    rules = ScalingRules((Policy(PolicyType.PODS, 10, 60),))
    for age, expected in ((60.0, 20), (59.9, 16)):
        assert scale_up_limit(10, State(scale_ups=(ScaleEvent(4, NOW - age),)), rules, NOW) == expected


def stabilizing(case: Case) -> Scaling:
    if not case.get("behavior", True):
        return Scaling(1000)
    up, down = (
        ScalingRules(one.policies, stabilization_seconds=window)
        for one, window in zip((SCALE_UP, SCALE_DOWN), case["windows"], strict=True)
    )
    return Scaling(1000, behavior=Behavior(up, down))


@pytest.mark.parametrize("case", cases("window"))
def test_stabilization_as_upstream(case: Case) -> None:
    state = State(tuple(Recommendation(replicas, NOW - age) for replicas, age in case["kept"]))
    found = stabilize(stabilizing(case), state, case["present"], case["wanted"], NOW)
    assert found.replicas == case["want"]
    assert [one.replicas for one in found.state.recommendations] == case["then"]
    stabilized = case["want"] != case["wanted"]
    assert (found.condition.reason is not ConditionReason.READY_FOR_NEW_SCALE) is stabilized


def test_the_windows_have_defaults() -> None:
    """Upstream fills in the window for scaling down from the flag of the controller manager."""
    state = State((Recommendation(9, NOW - 299), Recommendation(1, NOW - 1)))
    assert stabilize(Scaling(10, behavior=Behavior()), state, 9, 2, NOW).replicas == 9
    assert stabilize(Scaling(10, behavior=Behavior()), state, 1, 9, NOW).replicas == 9
    assert stabilize(Scaling(10, behavior=Behavior()), state, 9, 2, NOW + 2).replicas == 2


@pytest.mark.parametrize(("age", "up", "down"), [(60, 9, 2), (59.5, 6, 6)])
def test_a_recommendation_counts_until_it_is_as_old_as_the_window(age: float, up: int, down: int) -> None:
    rules = [replace(one, stabilization_seconds=60) for one in (SCALE_UP, SCALE_DOWN)]
    scaling = Scaling(100, behavior=Behavior(*rules))
    state = State((Recommendation(6, NOW - age),))
    assert stabilize(scaling, state, 3, 9, NOW).replicas == up
    assert stabilize(scaling, state, 8, 2, NOW).replicas == down


@pytest.mark.parametrize("case", cases("event"))
@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_events_as_upstream(case: Case, up: bool) -> None:
    policies = case["policies"]
    behavior = None
    if policies is not None:
        behavior = Behavior(*[ScalingRules(policies_of(policies))] * 2)
    before = tuple(ScaleEvent(change, NOW - age) for change, age in case["before"])
    scaling = Scaling(100, behavior=behavior)
    if up:
        kept = State(scale_ups=before).scaled(scaling, 10, 15, NOW).scale_ups
    else:
        kept = State(scale_downs=before).scaled(scaling, 10, 5, NOW).scale_downs
    assert [one.change for one in kept] == case["after"]
    assert [one.change for one in kept if one.outdated] == case["outdated"]
