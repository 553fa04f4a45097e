"""Tests of the state: its bounds, and its form as JSON."""

from __future__ import annotations

from dataclasses import replace

from pydantic import TypeAdapter

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

NOW = 1_000_000.0
RULES = ScalingRules((Policy(PolicyType.PODS, 1, 1800),), stabilization_seconds=100)
SCALING = Scaling(10, behavior=Behavior(RULES, RULES))


def test_a_state_survives_as_json() -> None:
    state = State(
        (Recommendation(5, NOW - 99.5), Recommendation(2, NOW - 30)),
        (ScaleEvent(2, NOW - 59),),
        (ScaleEvent(1, NOW - 5, outdated=True),),
        NOW - 40,
        True,
    )
    stored = TypeAdapter(State)
    assert stored.validate_json(stored.dump_json(state)) == state


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
    for i in range(MAX_EVENTS + 50):
        state = state.scaled(SCALING, 1, 2, NOW + i)
    assert len(state.scale_ups) == MAX_EVENTS
    assert state.scale_ups[-1].at == NOW + MAX_EVENTS + 49


def test_an_event_belongs_to_its_direction() -> None:
    state = State().scaled(SCALING, 1, 4, NOW).scaled(SCALING, 4, 2, NOW + 1)
    assert (state.scale_ups, state.scale_downs) == ((ScaleEvent(3, NOW),), (ScaleEvent(2, NOW + 1),))
    assert State().scaled(replace(SCALING, behavior=None), 1, 4, NOW) == State()
