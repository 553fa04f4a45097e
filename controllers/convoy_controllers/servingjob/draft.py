"""Drafts the status of a ServingJob, with the Events that go with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from convoy_controllers.children import Event
from convoy_controllers.condition_list import with_condition
from convoy_controllers.servingjob import advising
from convoy_controllers.servingjob.groups import Group
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.pods import selector
from convoy_controllers.servingjob.traffic import shown
from convoy_crds.meta import Condition
from convoy_crds.reasons.reason import Reason
from convoy_crds.servingjob_status import ServingJobStatus, ServingRoleStatus, Traffic
from convoy_crds.terms import ConditionType

MAX_SHORT_MESSAGE = 240
"""Maximum number of characters of `status.message`. The conditions have the full message."""
_SHOWN = (
    (ConditionType.VALID, "False"),
    (ConditionType.SUSPENDED, "True"),
    (ConditionType.MODEL_READY, "False"),
    (ConditionType.PROGRESSING, "False"),
    (ConditionType.AVAILABLE, "False"),
    (ConditionType.DEGRADED, "True"),
    (ConditionType.PROGRESSING, "Unknown"),
    (ConditionType.SCALING_ACTIVE, "False"),
    (ConditionType.CHECKPOINTING, "False"),
    (ConditionType.SLO_MET, "False"),
    (ConditionType.STRAGGLER_DETECTED, "True"),
)
"""Conditions that `status.reason` shows, the most important first."""


class Draft:
    """The status that one reconcile writes, and the Events that go with it."""

    def __init__(self, observed: Observed, now: datetime) -> None:
        self.observed = observed
        self.now = now.replace(microsecond=0)
        self.status: ServingJobStatus = observed.job.status.model_copy(deep=True)
        self.status.observed_generation = observed.job.metadata.generation
        self.status.traffic = _traffic(observed)
        self.events: list[Event] = []

    def condition(self, kind: str, holds: bool | None, reason: Reason, message: str) -> None:
        """Set one condition; `holds` None means Unknown. A change to a reason that is a warning becomes an
        Event.
        """
        before = next((one for one in self.status.conditions if one.type == kind), None)
        conditions = self.status.conditions
        self.status.conditions = with_condition(conditions, kind, holds, reason, message, self.now)
        if reason.warning and (before is None or before.reason != reason.name):
            self.event(reason, message)

    def drop(self, kind: str) -> None:
        """Remove the condition `kind` from the status."""
        self.status.conditions = [one for one in self.status.conditions if one.type != kind]

    def event(self, reason: Reason, message: str) -> None:
        """Add an Event, to be posted after the status is stored."""
        if Event(reason, message) not in self.events:
            self.events.append(Event(reason, message))

    def count(self, groups: Mapping[str, Sequence[Group]]) -> None:
        """Count the replicas of each role, by the live pods."""
        status, spec, desired = self.status, self.observed.job.spec, self.observed.desired
        status.roles = [
            self._role(role.name, desired(role.name), groups.get(role.name, ())) for role in spec.roles
        ]
        scaled = next(one for one in status.roles if one.name == spec.scaled)
        status.replicas, status.ready_replicas = scaled.replicas, scaled.ready
        status.updated_replicas, status.updated_ready_replicas = scaled.updated, scaled.updated_ready
        ready = sum(one.ready for one in status.roles)
        status.ready = f"{ready}/{sum(one.desired for one in status.roles)}"
        labels = selector(self.observed.job.metadata.name, spec.scaled)
        status.selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))

    def _role(self, name: str, desired: int, groups: Sequence[Group]) -> ServingRoleStatus:
        updated = [one for one in groups if one.record.revision == self.status.update_revision]
        return ServingRoleStatus(
            name=name,
            desired=desired,
            replicas=len(groups),
            ready=sum(one.ready for one in groups),
            updated=len(updated),
            updated_ready=sum(one.ready for one in updated),
        )

    def stored(self) -> dict[str, Any] | None:
        """Return the whole status as JSON; None if it equals the stored one."""
        advising.set_condition(self)
        self._summarize()
        fresh = self.status.to_dict()
        return None if fresh == self.observed.job.status.to_dict() else fresh

    def _summarize(self) -> None:
        """Set the reason and message that `kubectl get` shows."""
        found = {(one.type, one.status): one for one in self.status.conditions}
        fallback = found.get((ConditionType.PROGRESSING, "True"))
        shown: Condition | None = next((found[key] for key in _SHOWN if key in found), fallback)
        text = shown.message if shown else ""
        self.status.reason = shown.reason if shown else ""
        self.status.message = (
            text if len(text) <= MAX_SHORT_MESSAGE else text[: MAX_SHORT_MESSAGE - 4] + " ..."
        )


def _traffic(observed: Observed) -> Traffic | None:
    """Return the figures of the replicas. Those of the status stay while replicas are ready, but have not
    reported their requests to this operator yet.
    """
    stored = observed.job.status.traffic
    if observed.traffic is not None:
        return shown(observed.traffic, stored)
    return stored if any(pod.ready for pod in observed.own_pods) else None
