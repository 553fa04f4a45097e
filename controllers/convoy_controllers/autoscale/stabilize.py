"""Stabilization: a recommendation is compared with earlier ones, so that a short change of load has no
effect.
"""

from __future__ import annotations

from dataclasses import dataclass

from convoy_controllers.autoscale.conditions import Condition, ConditionReason, ConditionType
from convoy_controllers.autoscale.spec import Behavior, Scaling
from convoy_controllers.autoscale.state import State

_STABILIZED = {
    ConditionReason.SCALE_UP_STABILIZED: "an earlier recommendation was lower, and the lowest one counts",
    ConditionReason.SCALE_DOWN_STABILIZED: "an earlier recommendation was higher, and the highest one counts",
}


@dataclass(frozen=True, slots=True)
class Stabilized:
    """A stabilized recommendation and the state that contains the raw one."""

    replicas: int
    state: State
    condition: Condition
    """The condition AbleToScale."""


def stabilize(scaling: Scaling, state: State, present: int, wanted: int, now: float) -> Stabilized:
    """Return the stabilized number of replicas. The metrics ask for `wanted`; `present` is the present
    number.
    """
    if scaling.behavior is None:
        return _highest(scaling, state, wanted, now)
    return _within_windows(scaling, scaling.behavior, state, (present, wanted), now)


def _highest(scaling: Scaling, state: State, wanted: int, now: float) -> Stabilized:
    cutoff = now - scaling.settings.downscale_stabilization_seconds
    replicas = max((one.replicas for one in state.recommendations if one.at >= cutoff), default=wanted)
    replicas = max(replicas, wanted)
    state = state.recommended(wanted, now, cutoff)
    return Stabilized(replicas, state, _condition(replicas != wanted, ConditionReason.SCALE_DOWN_STABILIZED))


def _within_windows(
    scaling: Scaling, behavior: Behavior, state: State, counts: tuple[int, int], now: float
) -> Stabilized:
    present, wanted = counts
    up_cutoff = now - scaling.scale_up_window(behavior)
    down_cutoff = now - scaling.scale_down_window(behavior)
    lowest = highest = wanted
    for one in state.recommendations:
        if one.at > up_cutoff:
            lowest = min(lowest, one.replicas)
        if one.at > down_cutoff:
            highest = max(highest, one.replicas)
    replicas = min(max(present, lowest), highest)
    state = state.recommended(wanted, now, min(up_cutoff, down_cutoff))
    reason = (
        ConditionReason.SCALE_UP_STABILIZED if wanted >= present else ConditionReason.SCALE_DOWN_STABILIZED
    )
    return Stabilized(replicas, state, _condition(replicas != wanted, reason))


def _condition(stabilized: bool, reason: ConditionReason) -> Condition:
    if not stabilized:
        return Condition(
            ConditionType.ABLE_TO_SCALE,
            True,
            ConditionReason.READY_FOR_NEW_SCALE,
            "no earlier recommendation holds the number of replicas back",
        )
    return Condition(ConditionType.ABLE_TO_SCALE, True, reason, _STABILIZED[reason])
