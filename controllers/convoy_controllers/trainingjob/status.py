"""Drafts the status of a job: its conditions with their transition times, and the short texts for `kubectl
get`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from convoy_controllers.children import Event
from convoy_controllers.condition_list import with_condition
from convoy_controllers.placement.forecast.case import Case
from convoy_controllers.trainingjob import advising, interval, metrics, tiers
from convoy_controllers.trainingjob.goodput import FaultMark, account
from convoy_controllers.trainingjob.observed import Compared, Observed
from convoy_controllers.trainingjob.progress import merge_progress, newest_checkpoint
from convoy_crds.layout import slots
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import Role
from convoy_crds.trainingjob_independent import IndependentStatus
from convoy_crds.trainingjob_status import Phase, RoleStatus, TrainingJobStatus

MAX_SHORT_MESSAGE = 240
"""Maximum number of characters of `status.message`, which `kubectl get -o wide` shows. The conditions have
the full message.
"""


class Draft:
    """The status that one reconcile writes, and the Events that go with it."""

    def __init__(self, observed: Observed, now: datetime) -> None:
        self.observed = observed
        self.now = now.replace(microsecond=0)
        self.exact = now
        self.fault_mark: FaultMark | None = None
        """The fault that this reconcile handles, or the end of all ranks; None if there is neither."""
        self.status: TrainingJobStatus = observed.job.status.model_copy(deep=True)
        self.status.observed_generation = observed.job.metadata.generation
        self.events: list[Event] = []
        self.simulate: list[Case] = []
        """Steps to simulate."""
        self.compared: Compared = ()
        """The places that were compared for pods that this reconcile creates."""

    def condition(self, kind: str, holds: bool | None, reason: Reason, message: str) -> None:
        """Set one condition; `holds` None means Unknown. The transition time changes only with the
        condition's status.
        """
        conditions = self.status.conditions
        self.status.conditions = with_condition(conditions, kind, holds, reason, message, self.now)

    def drop(self, kind: str) -> None:
        """Remove the condition `kind` from the status."""
        self.status.conditions = [c for c in self.status.conditions if c.type != kind]

    def phase(self, phase: Phase, reason: Reason, message: str) -> None:
        """Set the phase and its reason. A change of the phase or the reason becomes an Event; a change of
        only the message does not.
        """
        changed = (self.status.phase, self.status.reason) != (phase, reason.name)
        self.status.phase = phase
        self.status.reason = reason.name
        self.status.message = (
            message if len(message) <= MAX_SHORT_MESSAGE else message[: MAX_SHORT_MESSAGE - 4] + " ..."
        )
        if changed:
            self.event(reason, message)

    def event(self, reason: Reason, message: str) -> None:
        """Add an Event, to be posted after the status is stored."""
        if Event(reason, message) not in self.events:
            self.events.append(Event(reason, message))

    def merge_reports(self, incarnation: int) -> None:
        """Merge the agents' reports into the status: the progress, the newest checkpoint, and the number of
        pods whose ranks run.
        """
        status, views = self.status, self.observed.slots
        status.progress = merge_progress(
            views.values(), incarnation, status.progress, metrics.declared(self.observed)
        )
        status.checkpoint = tiers.shown(
            newest_checkpoint(views.values(), status.checkpoint), tiers.of(self.observed, status)
        )
        if status.checkpoint is not None and status.saved is not None:
            status.checkpoint.interval = interval.decided(self.observed.job, status, views.values())
        running = {
            uid for uid, view in views.items() if view.incarnation == incarnation and is_up(view.ranks)
        }
        own = {pod.name: pod for pod in self.observed.pods if pod.uid in running}
        counts = {role.name: 0 for role in self.observed.job.spec.roles}
        known = {role.name: role for role in status.roles}
        layout = slots(self.observed.job)
        for slot in layout:
            counts[slot.role] += slot.pod in own
        status.roles = [
            _role_status(role, known.get(role.name), counts[role.name])
            for role in self.observed.job.spec.roles
        ]
        status.ready = f"{sum(counts.values())}/{len(layout)}"

    def stored(self) -> dict[str, Any] | None:
        """Return the whole status as JSON; None if it equals the stored one."""
        self._account()
        advising.set_condition(self)
        fresh = self.status.to_dict()
        return None if fresh == self.observed.job.status.to_dict() else fresh

    def _account(self) -> None:
        """Update the goodput ledger in the status."""
        job = self.observed.job
        point = job.status.saved
        running = next((c for c in self.status.conditions if c.type == ConditionType.RUNNING), None)
        account(
            job.status,
            self.status,
            made=job.metadata.creation_timestamp,
            running=(job.status.incarnation if job.status.formed else 0, [*self.observed.slots.values()]),
            waiting=running.reason if running is not None and running.status == "False" else "",
            fault_mark=self.fault_mark,
            resumed=point.step if point and point.incarnation < job.status.incarnation else 0,
            stepped=self.status.progress != job.status.progress,
            now=self.exact,
        )


def _role_status(role: Role, known: RoleStatus | None, ready: int) -> RoleStatus:
    """Return the status of a role. An Independent role keeps its counts (independent/conditions.py)."""
    before = known or RoleStatus(name=role.name)
    if role.independent:
        counts = before.independent or IndependentStatus()
        return RoleStatus(name=role.name, desired=role.replicas, ready=before.ready, independent=counts)
    return RoleStatus(
        name=role.name, desired=role.replicas, ready=ready, absent=before.absent, order=before.order
    )


def is_up(ranks: tuple[Any, ...]) -> bool:
    """Return True if every rank of a pod runs or has exited with code 0."""
    return bool(ranks) and all(
        rank.state == "RUNNING" or (rank.state == "EXITED" and not rank.exit_code and not rank.signal)
        for rank in ranks
    )
