"""The memory of the autoscaler between two decisions. All times are Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from convoy_controllers.autoscale.spec import Scaling, ScalingRules

MAX_RECOMMENDATIONS = 512
"""Maximum number of kept recommendations. The longest window of Kubernetes, an hour, has 240."""
MAX_EVENTS = 256
"""Maximum number of kept scale events in each direction. The longest period of Kubernetes, 30 minutes, has
120.
"""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A number of replicas that the metrics asked for, before stabilization and limits."""

    replicas: int
    at: float


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """A change of the number of replicas."""

    change: int
    """Size of the change, not negative."""
    at: float
    outdated: bool = False
    """True once the event was older than the longest period of all policies. A later event replaces it."""


@dataclass(frozen=True, slots=True)
class State:
    """The memory of one workload's autoscaler."""

    recommendations: tuple[Recommendation, ...] = ()
    scale_ups: tuple[ScaleEvent, ...] = ()
    scale_downs: tuple[ScaleEvent, ...] = ()
    active_at: float | None = None
    """Unix seconds at which a metric was last above its activation threshold. None if the workload has a
    minimum above zero.
    """
    at_zero: bool = False
    """True if the autoscaler itself has scaled the workload to zero."""

    def started(self, replicas: int, now: float) -> State:
        """Return the state with a first recommendation: the present number of replicas."""
        if self.recommendations:
            return self
        return replace(self, recommendations=(Recommendation(replicas, now),))

    def recommended(self, replicas: int, now: float, cutoff: float) -> State:
        """Return the state with one more recommendation. It replaces one from before `cutoff`, if any."""
        kept = list(self.recommendations)
        slot = max((i for i, one in enumerate(kept) if one.at < cutoff), default=None)
        if slot is None:
            kept.append(Recommendation(replicas, now))
        else:
            kept[slot] = Recommendation(replicas, now)
        if len(kept) > MAX_RECOMMENDATIONS:
            kept = list(needed(tuple(kept)))[-MAX_RECOMMENDATIONS:]
        return replace(self, recommendations=tuple(kept))

    def scaled(self, scaling: Scaling, before: int, after: int, now: float) -> State:
        """Return the state with an event for a change from `before` to `after` replicas."""
        if scaling.behavior is None:
            return self
        if after > before:
            events = _with_event(self.scale_ups, scaling.behavior.scale_up, after - before, now)
            return replace(self, scale_ups=events)
        events = _with_event(self.scale_downs, scaling.behavior.scale_down, before - after, now)
        return replace(self, scale_downs=events)


def needed(recommendations: tuple[Recommendation, ...]) -> tuple[Recommendation, ...]:
    """Return the recommendations that can still change a decision, ordered by time.

    Decisions use only the smallest and the largest recommendation since some time. A recommendation can be
    dropped if later ones include both one that is not larger and one that is not smaller.
    """
    kept: list[Recommendation] = []
    smallest = largest = None
    for one in sorted(recommendations, key=lambda one: one.at, reverse=True):
        if smallest is None or largest is None or one.replicas < smallest or one.replicas > largest:
            smallest = one.replicas if smallest is None else min(smallest, one.replicas)
            largest = one.replicas if largest is None else max(largest, one.replicas)
            kept.append(one)
    return tuple(reversed(kept))


def _with_event(
    events: tuple[ScaleEvent, ...], rules: ScalingRules, change: int, now: float
) -> tuple[ScaleEvent, ...]:
    cutoff = now - max((policy.period_seconds for policy in rules.policies), default=0)
    kept = [replace(one, outdated=True) if one.at < cutoff else one for one in events]
    slot = max((i for i, one in enumerate(kept) if one.outdated), default=None)
    if slot is None:
        kept.append(ScaleEvent(change, now))
    else:
        kept[slot] = ScaleEvent(change, now)
    return tuple(kept[-MAX_EVENTS:])
