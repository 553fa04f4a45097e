"""The result of the autoscaler for one workload at one time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from convoy_controllers.autoscale.conditions import Condition, ConditionReason, ConditionType
from convoy_controllers.autoscale.proposals import Proposal
from convoy_controllers.autoscale.state import State


class Reason(StrEnum):
    """The reason of a decision."""

    AT_TARGET = "AtTarget"
    """The metrics ask for the present number of replicas."""
    STABILIZED = "Stabilized"
    """An earlier recommendation decides, because its window is not over."""
    LIMITED = "Limited"
    """The metrics ask for a change, but a limit forbids it."""
    ABOVE_TARGET = "AboveTarget"
    """A metric is above its target: the workload grows."""
    BELOW_TARGET = "BelowTarget"
    """All metrics are below their targets: the workload shrinks."""
    ABOVE_MAX_REPLICAS = "AboveMaxReplicas"
    """The workload had more replicas than maxReplicas."""
    BELOW_MIN_REPLICAS = "BelowMinReplicas"
    """The workload had fewer replicas than minReplicas."""
    METRICS_FAILED = "MetricsFailed"
    """The metrics give no number of replicas. Nothing changes."""
    DISABLED = "Disabled"
    """The workload was set to zero replicas by someone else."""
    ACTIVATED = "Activated"
    """A metric is above its activation threshold: the workload leaves zero."""
    IDLE = "Idle"
    """No metric was above its activation threshold: the workload scales to zero, or stays there."""


CHANGE_REASONS = (
    Reason.ABOVE_TARGET,
    Reason.BELOW_TARGET,
    Reason.STABILIZED,
    Reason.ABOVE_MAX_REPLICAS,
    Reason.BELOW_MIN_REPLICAS,
    Reason.ACTIVATED,
    Reason.IDLE,
)
"""Reasons of decisions that change the number of replicas."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision. The caller writes `desired` if it differs from `present`, and then keeps `state`."""

    present: int
    """Number of replicas before the decision."""
    desired: int
    """Number of replicas that the workload shall have."""
    reason: Reason
    message: str
    state: State
    """State to keep once `desired` is written."""
    unwritten: State
    """State to keep if `desired` could not be written."""
    conditions: tuple[Condition, ...] = ()
    """Conditions that the decision sets. Others keep their former value."""
    proposals: tuple[Proposal, ...] = ()
    """The proposal of each metric, in the order of the metrics. Empty if the metrics did not matter."""

    @property
    def changes(self) -> bool:
        """True if the number of replicas changes."""
        return self.desired != self.present

    def condition(self, type_: ConditionType) -> Condition | None:
        """Return a condition that the decision sets."""
        return next((one for one in self.conditions if one.type is type_), None)

    def setting(self, *conditions: Condition) -> Decision:
        """Return the decision with more conditions. They replace others of their types."""
        types = {one.type for one in conditions}
        kept = tuple(one for one in self.conditions if one.type not in types)
        return replace(self, conditions=(*kept, *conditions))

    def not_written(self, error: str) -> Decision:
        """Return the decision for the case that the API server refused the number of replicas."""
        failed = Condition(
            ConditionType.ABLE_TO_SCALE,
            False,
            ConditionReason.FAILED_UPDATE_SCALE,
            f"the number of replicas could not be changed from {self.present} to {self.desired}: {error}",
        )
        return replace(self.setting(failed), desired=self.present, state=self.unwritten)
