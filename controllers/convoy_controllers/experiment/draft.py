"""The plan that one reconcile of an Experiment makes: its status, its jobs and its Events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from convoy_controllers.children import Check, Child, Create, Delete, Event
from convoy_controllers.commands import Command
from convoy_controllers.condition_list import with_condition
from convoy_controllers.experiment.names import plan_label
from convoy_controllers.experiment.observed import ChildJob, Observed
from convoy_controllers.plan import Plan
from convoy_controllers.resources import Resource
from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_status import EXPERIMENT_ENDED, ExperimentPhase, ExperimentStatus
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import LABEL_PLAN, ConditionType

MAX_SHORT_MESSAGE = 240
"""Maximum number of characters of `status.message`. The conditions have the full message."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The phase that a plan leads to, and the reason for it."""

    phase: ExperimentPhase | None
    reason: Reason | None = None
    """None if the plan leaves the phase as it is."""
    message: str = ""
    progressing: bool = False


class Draft:
    """The status that one reconcile writes, and the jobs that it creates and deletes."""

    def __init__(self, observed: Observed, now: datetime) -> None:
        self.observed = observed
        self.now = now.replace(microsecond=0)
        self.exact = now
        self.status: ExperimentStatus = observed.experiment.status.model_copy(deep=True)
        self.status.observed_generation = observed.experiment.metadata.generation
        self.experiment = observed.experiment.model_copy(update={"status": self.status})
        """The experiment with the drafted status."""
        self._children: list[Child] = []
        self._commands: list[Command] = []
        self._events: list[Event] = []
        self._requeue: float | None = None
        self.places = 0
        """Number of runs whose jobs may still be created in this plan."""
        self.edited = False
        """True if the spec is not the registered plan."""
        self._outcome = Outcome(self.status.phase)
        self.status_first = True
        """False if the status must be stored only after the API server has checked the jobs."""

    @property
    def spec(self) -> ExperimentSpec:
        """Return the spec of the experiment."""
        return self.experiment.spec

    @property
    def plan_hash(self) -> str:
        """Return the hash of the plan; empty before there is one."""
        return self.status.plan.hash if self.status.plan is not None else ""

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
        return self.experiment.metadata.name

    @property
    def may_start(self) -> bool:
        """Return True if the spec lets jobs start."""
        return not self.spec.suspend and not self.edited

    def job(self, name: str, uid: str) -> ChildJob | None:
        """Return the job of this name; None if it does not exist or is another one. `uid`: the job's uid;
        empty if it is unknown, and then the label must name the plan.
        """
        found = self.observed.jobs.get(name)
        if found is None or not (found.uid == uid if uid else self.belongs(found)):
            return None
        return found

    def belongs(self, job: ChildJob) -> bool:
        """Return True if a job was made for the plan, according to its label."""
        return job.labels.get(LABEL_PLAN) == plan_label(self.plan_hash)

    def create(self, resource: Resource, manifest: Mapping[str, Any]) -> None:
        """Create a job."""
        self._children.append(Create(resource, manifest))

    def check(self, resource: Resource, manifest: Mapping[str, Any]) -> None:
        """Let the API server check a job without creating it."""
        self._children.append(Check(resource, manifest))

    def delete(self, job: ChildJob) -> None:
        """Delete a job."""
        if not job.deleting:
            self._children.append(Delete(job.resource, job.name, job.uid))

    def delete_pod(self, child: Delete) -> None:
        """Delete a pod of a job."""
        self._children.append(child)

    def command(self, command: Command) -> None:
        """Send a command to an agent."""
        self._commands.append(command)

    def event(self, reason: Reason, message: str) -> None:
        """Add an Event, to be posted after the status is stored."""
        if Event(reason, message) not in self._events:
            self._events.append(Event(reason, message))

    def requeue(self, seconds: float) -> None:
        """Plan again after this time at the latest."""
        self._requeue = seconds if self._requeue is None else min(self._requeue, seconds)

    def condition(self, kind: str, holds: bool | None, reason: Reason, message: str) -> None:
        """Set one condition; `holds` None means Unknown."""
        self.status.conditions = with_condition(
            self.status.conditions, kind, holds, reason, message, self.now
        )

    @property
    def ended(self) -> bool:
        """Return True if the experiment has ended, before this plan or by it."""
        return self._outcome.phase in EXPERIMENT_ENDED

    def progress(self, phase: ExperimentPhase, reason: Reason, message: str) -> None:
        """Show that the experiment goes on."""
        self._outcome = Outcome(phase, reason, message, progressing=True)

    def wait(self, phase: ExperimentPhase, reason: Reason, message: str) -> None:
        """Show that the experiment waits."""
        self._outcome = Outcome(phase, reason, message, progressing=False)

    def end(self, phase: ExperimentPhase, reason: Reason, message: str) -> None:
        """End the experiment with a phase that never changes again."""
        self.status.completion_time = self.now
        self._outcome = Outcome(phase, reason, message, progressing=False)

    def obstruct(self, reason: Reason, message: str) -> None:
        """Show that something keeps the experiment from going on. Its phase stays."""
        self._outcome = replace(self._outcome, reason=reason, message=message, progressing=False)

    def _show(self) -> None:
        """Write the phase and its conditions to the status. A change of phase or reason becomes an Event."""
        phase, reason, message = self._outcome.phase, self._outcome.reason, self._outcome.message
        if reason is None:
            return
        if (self.status.phase, self.status.reason) != (phase, reason.name):
            self.event(reason, message)
        self.status.phase, self.status.reason = phase, reason.name
        short = len(message) <= MAX_SHORT_MESSAGE
        self.status.message = message if short else message[: MAX_SHORT_MESSAGE - 4] + " ..."
        self.condition(ConditionType.PROGRESSING, self._outcome.progressing, reason, message)
        if phase in EXPERIMENT_ENDED:
            failed = phase is ExperimentPhase.FAILED
            kind = ConditionType.FAILED if failed else ConditionType.COMPLETE
            self.condition(kind, True, reason, message)

    def plan(self) -> Plan:
        """Return the plan. The status is stored first, so that it names every job that exists."""
        self._show()
        fresh = self.status.to_dict()
        changed = fresh != self.observed.experiment.status.to_dict()
        return Plan(
            status=fresh if changed else None,
            status_first=self.status_first,
            children=tuple(sorted(self._children, key=_order)),
            events=tuple(self._events),
            commands=tuple(self._commands),
            requeue_after=self._requeue,
        )


def _order(child: Child) -> int:
    """Return the place of a child: jobs are deleted before others are created."""
    return (Delete, Check, Create).index(type(child))
