"""The data that the autoscaler keeps between two decisions. A restart of the operator loses the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convoy_controllers.autoscale.conditions import Condition
from convoy_controllers.autoscale.decision import Decision
from convoy_controllers.autoscale.samples import Observed
from convoy_controllers.autoscale.spec import Scaling
from convoy_controllers.autoscale.state import State


@dataclass(frozen=True, slots=True)
class Sync:
    """The newest decision, with its input."""

    scaling: Scaling
    observed: Observed
    state: State
    """State before the decision."""
    at: float
    """Time of the decision, in Unix seconds."""
    decision: Decision


@dataclass(frozen=True, slots=True)
class Memory:
    """The data that the autoscaler keeps about one role."""

    state: State
    since: float = 0.0
    """Unix seconds at which this operator first planned the role."""
    conditions: tuple[Condition, ...] = ()
    """Newest condition of each type."""
    sync: Sync | None = None

    @property
    def at(self) -> float:
        """Return the time of the newest decision in Unix seconds; 0 before the first one."""
        return self.sync.at if self.sync else 0.0


Memories = Mapping[str, Memory]
"""Memory of each role, by its name."""
