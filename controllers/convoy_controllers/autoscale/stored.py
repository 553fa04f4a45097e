"""The state of the autoscaler as a JSON value, so that it survives a restart of its caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from convoy_controllers.autoscale.spec import Scaling
from convoy_controllers.autoscale.state import (
    MAX_EVENTS,
    MAX_RECOMMENDATIONS,
    Recommendation,
    ScaleEvent,
    State,
    needed,
)

Stored = Mapping[str, Any]


def store(state: State, scaling: Scaling, now: float) -> Stored:
    """Return the parts of the state that can still change a decision by these settings, as a JSON value."""
    window = float(scaling.settings.downscale_stabilization_seconds)
    period = 0.0
    if (behavior := scaling.behavior) is not None:
        window = float(max(scaling.scale_up_window(behavior), scaling.scale_down_window(behavior)))
        policies = (*behavior.scale_up.policies, *behavior.scale_down.policies)
        period = float(max((policy.period_seconds for policy in policies), default=0))
    recent = [one for one in needed(state.recommendations) if one.at >= now - window]
    stored: dict[str, Any] = {"recommendations": [[one.replicas, one.at] for one in recent]}
    for name, events in (("scaleUps", state.scale_ups), ("scaleDowns", state.scale_downs)):
        stored[name] = [[one.change, one.at] for one in events if one.at > now - period]
    if state.active_at is not None:
        stored["activeAt"] = state.active_at
    if state.at_zero:
        stored["atZero"] = True
    return stored


def restore(stored: Stored) -> State:
    """Return the state that `store` has written. Entries that are no numbers, and more of them than a state
    keeps, are left out.
    """
    active_at = stored.get("activeAt")
    return State(
        tuple(
            Recommendation(int(replicas), at)
            for replicas, at in _pairs(stored, "recommendations")[-MAX_RECOMMENDATIONS:]
        ),
        _events(_pairs(stored, "scaleUps")),
        _events(_pairs(stored, "scaleDowns")),
        float(active_at) if isinstance(active_at, int | float) else None,
        stored.get("atZero") is True,
    )


def _pairs(stored: Stored, name: str) -> Sequence[tuple[float, float]]:
    found = stored.get(name)
    if not isinstance(found, list):
        return ()
    pairs = [one for one in found if isinstance(one, list) and len(one) == 2 and all(map(_is_number, one))]
    return [(first, float(second)) for first, second in pairs]


def _events(pairs: Iterable[tuple[float, float]]) -> tuple[ScaleEvent, ...]:
    return tuple(ScaleEvent(int(change), at) for change, at in pairs)[-MAX_EVENTS:]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
