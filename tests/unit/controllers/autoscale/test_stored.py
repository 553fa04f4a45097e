"""Tests of the state: its bounds, and its form as a JSON value."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from convoy_controllers.autoscale.spec import (
    Behavior,
    Policy,
    PolicyType,
    Scaling,
    ScalingRules,
)
from convoy_controllers.autoscale.state import (
    MAX_EVENTS,
    MAX_RECOMMENDATIONS,
    Recommendation,
    ScaleEvent,
    State,
    needed,
)
from convoy_controllers.autoscale.stored import restore, store

NOW = 1_000_000.0
RULES = ScalingRules((Policy(PolicyType.PODS, 1, 60),), stabilization_seconds=100)
SCALING = Scaling(10, behavior=Behavior(RULES, RULES))


def test_a_state_survives_as_json() -> None:
    state = State(
        (Recommendation(5, NOW - 99), Recommendation(2, NOW - 30), Recommendation(3, NOW)),
        (ScaleEvent(2, NOW - 59),),
        (ScaleEvent(1, NOW - 5),),
        NOW - 40,
        True,
    )
    assert restore(json.loads(json.dumps(store(state, SCALING, NOW)))) == state


def test_only_what_can_matter_is_stored() -> None:
    state = State(
        (Recommendation(9, NOW - 101), *(Recommendation(3, NOW - age) for age in (60, 45, 30, 15, 0))),
        (ScaleEvent(2, NOW - 60),),
        (ScaleEvent(2, NOW - 61, outdated=True),),
    )
    assert store(state, SCALING, NOW) == {"recommendations": [[3, NOW]], "scaleUps": [], "scaleDowns": []}


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"recommendations": None, "scaleUps": 3, "activeAt": "today", "atZero": "yes"},
        {"recommendations": [[1], [1, "x"], "ab", [True, 1.0]], "scaleDowns": {}},
    ],
)
def test_a_damaged_value_is_an_empty_state(stored: dict[str, Any]) -> None:
    assert restore(stored) == State()


def test_the_smallest_and_the_largest_are_needed() -> None:
    found = needed(tuple(Recommendation(replicas, NOW + i) for i, replicas in enumerate((9, 1, 5, 8, 2, 4))))
    assert [one.replicas for one in found] == [9, 1, 8, 2, 4]


def test_recommendations_are_bounded() -> None:
    state = State()
    for i in range(MAX_RECOMMENDATIONS + 50):
        state = state.recommended(i % 7, NOW + i, NOW)
        assert len(state.recommendations) <= MAX_RECOMMENDATIONS
    later = [one.replicas for one in state.recommendations if one.at > NOW + 500]
    assert (min(later), max(later)) == (0, 6)


def test_events_are_bounded() -> None:
    state = State()
    scaling = replace(
        SCALING, behavior=Behavior(replace(RULES, policies=(Policy(PolicyType.PODS, 1, 1800),)))
    )
    for i in range(MAX_EVENTS + 50):
        state = state.scaled(scaling, 1, 2, NOW + i)
    assert len(state.scale_ups) == MAX_EVENTS
