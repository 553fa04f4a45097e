"""The entry of the autoscaler: one decision for one workload."""

from __future__ import annotations

from convoy_controllers.autoscale.decision import Decision
from convoy_controllers.autoscale.horizontal import decide_horizontal
from convoy_controllers.autoscale.samples import Observed
from convoy_controllers.autoscale.spec import Scaling
from convoy_controllers.autoscale.state import State
from convoy_controllers.autoscale.zero import decide_zero, leave_zero


def decide(scaling: Scaling, observed: Observed, state: State, now: float) -> Decision:
    """Return the number of replicas that the workload shall have. Call it every `SYNC_SECONDS`.

    `state` is that of the last decision, `State()` before the first one. `now` is in Unix seconds, as are
    all times.
    """
    if scaling.min_replicas == 0:
        return decide_zero(scaling, observed, state, now)
    if observed.spec_replicas == 0 and state.at_zero:
        return leave_zero(scaling, state, now)
    return decide_horizontal(scaling, observed, state, now)
