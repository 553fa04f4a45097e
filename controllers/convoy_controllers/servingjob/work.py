"""The state of one plan of a ServingJob, to which the steps of the plan add."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from convoy_controllers.children import Create, Delete
from convoy_controllers.commands import Command
from convoy_controllers.placement.gang_choice import GangSpec
from convoy_controllers.servingjob.draft import Draft
from convoy_controllers.servingjob.faults import LostNodes
from convoy_controllers.servingjob.groups import Group, Key, by_role
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.revision import Revision
from convoy_controllers.workers.violation import Violation


@dataclass(slots=True)
class Work:
    """The state of one plan while its steps add to it."""

    observed: Observed
    draft: Draft
    now: datetime
    lost: LostNodes
    revisions: dict[str, Revision]
    groups: dict[Key, Group]
    deletions: list[Delete] = field(default_factory=list)
    creations: list[Create] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    waits: list[float | None] = field(default_factory=list)
    model_faults: dict[Key, Violation] = field(default_factory=dict)
    """Failed delivery of each group that waits for its model."""
    held: dict[Key, Violation] = field(default_factory=dict)
    """Reason why the missing pods of each of these groups are not created yet."""
    gang_specs: dict[tuple[str, str], GangSpec] = field(default_factory=dict)
    """The pods of a replica, by role and revision."""
    kept: int = 0
    """Number of replicas of the serving role that stay although none is wanted (`activation`)."""
    status_first: bool = False
    """True if the status has a new incarnation, which must be stored before a command names it."""

    def roles(self) -> dict[str, list[Group]]:
        """Return the groups of each role."""
        return by_role(self.groups.values())
