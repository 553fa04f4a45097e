"""Independent roles of a TrainingJob: their settings, and the status of their pods."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from convoy_crds.meta import Bookkeeping, Model, StatusModel

MAX_ROLES = 8
"""Maximum number of roles of a job."""
MAX_INDEPENDENT = 500
"""Maximum number of pods of an Independent role. The status has a record for each of them."""
MAX_RECORDS = (MAX_ROLES - 1) * MAX_INDEPENDENT
"""Maximum number of these records. At least one role is no Independent role."""


class Membership(StrEnum):
    """Place of a role's pods in relation to the job's process group."""

    MEMBER = "Member"
    """The ranks of the pods belong to the process group. If a pod is lost, the group restarts."""
    INDEPENDENT = "Independent"
    """Each pod runs a program of its own outside the process group. Pods come and go without any effect on
    the group or on each other.
    """


class Budget(Model):
    """Number of restarts that each pod of an Independent role may use. The counts start again at 0 if a pod
    has no fault for `windowSeconds`.
    """

    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 10
    """Maximum number of restarts after failures of the program. Convoy gives the pod up at the next
    failure.
    """
    max_preemptions: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Maximum number of restarts after the loss of the pod, such as an eviction or the loss of its node.
    Convoy gives the pod up at the next loss. If absent, there is no limit.
    """
    window_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 3600
    """Number of seconds without a fault after which both counts start again at 0."""


class IndependentStatus(StatusModel):
    """The state of the pods of one Independent role."""

    completed: int = 0
    """Number of pods whose program exited with code 0. They are not started again."""
    given_up: int = 0
    """Number of pods that Convoy does not start again, because their budget is spent or no restart helps."""
    restarts: int = 0
    """Number of restarts after failures, over all pods. It never decreases."""
    preemptions: int = 0
    """Number of losses of pods, such as evictions and losses of nodes. It never decreases."""


class Ending(StrEnum):
    """Reason why the pod of an independent slot is not started again."""

    COMPLETED = "Completed"
    GIVEN_UP = "GivenUp"


class IndependentRecord(Bookkeeping):
    """The history of one slot of an Independent role."""

    role: str
    replica: int = 0
    incarnation: int = 0
    """Number of the newest start of the slot's program. All starts of Independent pods of a job share one
    sequence of numbers. 0 before the first start.
    """
    pod: str = ""
    """Digest of the pod that runs the incarnation. Absent while the slot waits for its pod or for its
    back-off.
    """
    failures: int = 0
    """Number of failures of the program. See `roles[].budget`."""
    preemptions: int = 0
    """Number of losses of the slot's pod."""
    at: datetime | None = None
    """Time of the last fault."""
    not_before: datetime | None = None
    """Time before which the program must not start again."""
    ending: Ending | None = None
    """Reason why the slot's pod is not started again."""
    reason: str = ""
    """Reason of the fault for which the slot was given up."""
    why: str = ""
    """Message of that fault."""
