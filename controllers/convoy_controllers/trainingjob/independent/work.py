"""The state of one reconcile of a job's Independent pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from convoy_controllers.children import Child, Delete
from convoy_controllers.commands import Command, MemberAddress
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView
from convoy_crds.layout import Slot, independent_slots
from convoy_crds.trainingjob import Role
from convoy_crds.trainingjob_independent import Budget, IndependentRecord, IndependentStatus

Key = tuple[str, int]
"""Role and number of a slot."""


@dataclass(slots=True)
class Work:
    """The observation and the decisions of one reconcile."""

    observed: Observed
    """The job with the pods of its Independent roles."""
    draft: Draft
    now: datetime
    own: Mapping[str, PodView]
    """The job's own Independent pods, by name."""
    lost: Mapping[str, str]
    """The reason why each lost node is lost, by name of the node."""
    layout: tuple[Slot, ...]
    roles: Mapping[str, Role]
    """The Independent roles, by name."""
    counts: dict[str, IndependentStatus]
    """Counts of each role for the status, by name of the role."""
    incarnation: int = 0
    """Number of the newest start of a program."""
    members: tuple[MemberAddress, ...] = ()
    """The pods of the process group."""
    records: dict[Key, IndependentRecord] = field(default_factory=dict)
    deletions: list[Delete] = field(default_factory=list)
    creations: list[Child] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    waits: list[float | None] = field(default_factory=list)

    @property
    def staying(self) -> dict[str, PodView]:
        """Return the job's own Independent pods that this reconcile does not delete, by name."""
        leaving = {one.name for one in self.deletions}
        return {name: pod for name, pod in self.own.items() if name not in leaving}

    def budget(self, role: str) -> Budget:
        """Return the budget of each pod of a role."""
        return self.roles[role].budget or Budget()


def start(observed: Observed, draft: Draft, lost: Mapping[str, str], now: datetime) -> Work:
    """Return the work of one reconcile, with the records that the status has. `lost` has the reason why each
    lost node is lost, by name of the node.
    """
    job, status = observed.job, draft.status
    layout = independent_slots(job)
    known = {(one.role, one.replica): one for one in status.internal.independent}
    roles = {role.name: role for role in job.spec.roles if role.independent}
    before = {one.name: one.independent for one in status.roles}
    seen = [max(view.incarnation, view.port_incarnation) for view in observed.slots.values()]
    return Work(
        observed=observed,
        draft=draft,
        now=now,
        own={pod.name: pod for pod in observed.pods if pod.owner_uid == job.metadata.uid},
        lost=lost,
        layout=layout,
        roles=roles,
        incarnation=max([status.internal.independent_incarnation, *seen]),
        counts={name: (before.get(name) or IndependentStatus()).model_copy() for name in roles},
        records={
            (slot.role, slot.replica): known.get((slot.role, slot.replica))
            or IndependentRecord(role=slot.role, replica=slot.replica)
            for slot in layout
        },
    )
