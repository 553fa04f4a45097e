"""NodeHealth: the health of one node's hardware. It stays the same object if the node gets another name.

The object's name is the hash of the UUIDs of the node's accelerators. For a node without accelerators, the
name is the machine id.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.guardpolicy import Repair
from convoy_crds.kind import Column, Editors, Kind, Scope
from convoy_crds.meta import (
    Bookkeeping,
    Condition,
    Model,
    ObjectMeta,
    Rule,
    StatusModel,
    map_list,
    validated,
)

MOST_HISTORY = 32
MOST_EVIDENCE = 16
MOST_ACTIONS = 16
MOST_EXEMPT_HOURS = 72
"""Maximum number of hours that an exemption lasts, even if its `until` is later."""

_Name = Annotated[str, Field(max_length=253)]
_Text = Annotated[str, Field(max_length=1024)]
_Words = Annotated[str, Field(min_length=1, max_length=1024)]


class State(StrEnum):
    """State of the hardware."""

    UNVERIFIED = "Unverified"
    """The node is in service, but has no valid passed sweep."""
    GATED = "Gated"
    """The node is out of service until it passes a sweep."""
    SWEEPING = "Sweeping"
    QUALIFIED = "Qualified"
    SUSPECT = "Suspect"
    """The node is in service, but the scheduler avoids it if possible."""
    QUARANTINED = "Quarantined"
    """The node is out of service. It gets no more pods, and its jobs save their state for a swap to other
    nodes.
    """
    DRAINING = "Draining"
    REPAIRING = "Repairing"
    REQUALIFYING = "Requalifying"
    PROBATION = "Probation"
    """The node is in service and under observation after a repair."""
    CONDEMNED = "Condemned"
    EXEMPT = "Exempt"
    """Convoy takes no action on the node, because an administrator has requested that."""


class Verdict(StrEnum):
    """Result of a sweep."""

    PASS = "Pass"  # noqa: S105 - no password
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"


class EvidenceKind(StrEnum):
    """Source of evidence. Agreeing evidence from both sources confirms that the node is faulty."""

    ONLINE = "Online"
    """Step times of running jobs."""
    SWEEP = "Sweep"
    """Tests of a sweep."""


class ManualDecision(Model):
    """An administrator's decision, with the reason and the name of the user."""

    reason: _Words
    user: Annotated[str, Field(min_length=1, max_length=253)]


class Exempt(ManualDecision):
    """Exempts the node for some time. Convoy then takes no action on the node and ignores evidence against
    it.
    """

    until: datetime
    """End of the exemption. If it is more than 72 hours after the request, Convoy shortens the exemption to
    72 hours.
    """


class Release(ManualDecision):
    """Returns the node to service on probation, and discards the evidence against the node. A release takes
    effect once.
    """

    at: datetime
    """Time of the release. Setting another time makes the release take effect again."""


class NodeHealthSpec(Model):
    """Administrators' decisions about the hardware. Convoy determines everything else itself."""

    model_config = validated(
        Rule(
            "!has(self.exempt) || !has(self.condemned)",
            "a node is exempt or condemned, not both: remove one of them",
        )
    )

    exempt: Exempt | None = None
    condemned: ManualDecision | None = None
    """Takes the node out of service until this field is removed. Then Convoy retests the node."""
    release: Release | None = None


class NodeRef(StatusModel):
    """The node that has the hardware, or that had it last."""

    name: _Name = ""
    uid: Annotated[str, Field(max_length=64)] = ""
    rack: _Name = ""
    driver: Annotated[str, Field(max_length=128)] = ""
    boot_id: Annotated[str, Field(max_length=64)] = ""


class Provenance(StatusModel):
    """Versions and settings under which a test ran."""

    driver: Annotated[str, Field(max_length=128)] = ""
    firmware: Annotated[str, Field(max_length=128)] = ""
    kernel: Annotated[str, Field(max_length=128)] = ""
    power_cap: Annotated[str, Field(max_length=32)] = ""
    suite: Annotated[str, Field(max_length=64)] = ""
    """Version of the sweep."""


class Evidence(StatusModel):
    """One piece of evidence against the hardware."""

    kind: EvidenceKind
    source: _Name
    """The job (namespace/name) or HealthSweep that observed the hardware."""
    cause: Annotated[str, Field(max_length=64)] = ""
    since: datetime
    seen: datetime
    """Time of the latest observation."""
    loss: float = 0.0
    """GPU-seconds that were lost since the time `since`."""
    forgiven: float = 0.0
    """The part of `loss` that was lost before the last passed sweep."""
    slowdown: float = 0.0
    """Duration relative to the peers of the node: 1.1 means 10 % slower."""
    message: _Text = ""
    provenance: Provenance | None = None


class Notice(StatusModel):
    """A delay of a job that the node may or may not have caused. In mode Act, Convoy sweeps the node when the
    node is idle.
    """

    job: _Name
    """The delayed job, as namespace/name."""
    cause: Annotated[str, Field(max_length=64)]
    """Cause of the delay: `Input` or `Host`; another cause if too few ranks do the same work to prove it."""
    at: datetime
    slowdown: float
    """Duration of a step relative to a step without the delay: 1.1 means 10 % longer."""


class StateChange(StatusModel):
    """One change of the hardware's state."""

    at: datetime
    before: State
    after: State
    reason: Annotated[str, Field(max_length=64)]
    message: _Text = ""
    node: _Name = ""
    provenance: Provenance | None = None


class Outcome(StrEnum):
    """Result of a drain: the measured gain compared with the predicted gain."""

    PENDING = "Pending"
    RIGHT = "Right"
    WRONG = "Wrong"
    UNKNOWN = "Unknown"


class PaceRecord(StatusModel):
    """The speed of a job before its swap, and the predicted gain."""

    job: _Name
    """The swapped job, as namespace/name."""
    uid: Annotated[str, Field(max_length=64)] = ""
    """UID of the job. It distinguishes the job from a later job of the same name."""
    incarnation: int = 0
    ranks: int = 0
    seconds: float
    """Seconds per step."""
    error: float = 0.0
    """Standard error of `seconds`."""
    gain: float
    """Predicted decrease in the duration of a step, in seconds."""
    others: Annotated[list[_Name], Field(max_length=16)] = Field(default_factory=list)
    """Other nodes that delayed the job at the same time. While the job still runs on one of them it stays
    slow, so the gain of the swap cannot be measured.
    """
    cause: Annotated[str, Field(max_length=64)] = ""
    slow: Annotated[list[int], Field(max_length=64)] = Field(default_factory=list)
    """Ranks on this node that delayed the other ranks."""
    followed: bool = False
    """True if the same ranks are also slow on their new nodes. Then this node was not the cause."""


class Action(StatusModel):
    """A swap of the node's jobs that Convoy started: a drain, or a swap before a test of a suspect. Each
    counts against the budgets.
    """

    at: datetime
    test: bool = False
    """True if the jobs were swapped only so that the node could be tested."""
    rack: _Name = ""
    jobs: Annotated[list[_Name], Field(max_length=64)] = Field(default_factory=list)
    paces: Annotated[list[PaceRecord], Field(max_length=16)] = Field(default_factory=list)
    """Speeds of the jobs that the node delayed."""
    outcome: Outcome = Outcome.PENDING
    decided: datetime | None = None
    """Time at which the outcome became known."""


class SweepCause(StrEnum):
    """Reason why Convoy sweeps a node."""

    JOINED = "Joined"
    """The node is new. It gets no pods before it has passed the sweep."""
    RETURNING = "Returning"
    """The node was drained, and may have been repaired."""
    SUSPECTED = "Suspected"
    EXPIRED = "Expired"
    """The node's qualification has expired."""
    NOTICED = "Noticed"
    """A job observed a delay that the node may have caused."""
    ROUTINE = "Routine"


class SweepRef(StatusModel):
    """The running sweep of this node."""

    name: _Name
    since: datetime
    cause: SweepCause = SweepCause.SUSPECTED
    swaps: bool = False
    """True if the jobs on the node are swapped to other nodes for this sweep."""


class RepairStatus(StatusModel):
    """The current step of the repair ladder."""

    step: int = 0
    """Index of the step in the repair ladder, from 0."""
    action: Repair | None = None
    owner: _Name = ""
    since: datetime | None = None
    """Time at which Convoy handed the step to its owner. Absent before that time."""


class ExemptStatus(StatusModel):
    """An exemption that is active or has ended."""

    since: datetime
    until: datetime
    """End of the exemption that the administrator requested."""
    before: State


class NodeHealthInternal(Bookkeeping):
    """Bookkeeping of the operator, for Convoy only. It is not part of the API and may change in any release.
    Fields with an empty value, 0 or false are absent.
    """

    holds_token: bool = False
    """True if the node is being drained or repaired, so that it counts against the budgets of the pool and
    the rack.
    """
    clean_since: datetime | None = None
    """Start of the current period without evidence against the node. When telemetry returns after an
    interruption, Convoy moves this time forward by the length of the interruption. So time without
    telemetry does not count.
    """
    looked_at: datetime | None = None
    """Time at which a sweep last checked the delay in `noticed`."""
    inconclusive: int = 0
    """Number of consecutive sweeps without a verdict."""
    condemned_by_hand: bool = False
    """True if the node is condemned because of `spec.condemned`."""
    released_at: datetime | None = None
    """Value of `spec.release.at` for the last release that took effect."""


class NodeHealthStatus(StatusModel):
    """State of the hardware, evidence against it, and Convoy's actions. Convoy's decisions depend on no
    other stored data.
    """

    observed_generation: int = 0
    state: State = State.UNVERIFIED
    since: datetime | None = None
    """Time of the last state change. Absent before the first state change."""
    message: _Text = ""
    node_ref: NodeRef = Field(default_factory=NodeRef)
    policy: _Name = ""
    conditions: Annotated[list[Condition], Field(max_length=8, json_schema_extra=map_list("type"))] = Field(
        default_factory=list
    )
    qualified_until: datetime | None = None
    """Time at which the latest passed sweep expires."""
    lemon_score: float = 0.0
    """Weighted number of the node's quarantines. The weight of a quarantine starts at 1 and halves every 30
    days.
    """
    evidence: Annotated[list[Evidence], Field(max_length=MOST_EVIDENCE)] = Field(default_factory=list)
    confirmed_at: datetime | None = None
    """Time at which the evidence became sufficient for a quarantine."""
    noticed: Notice | None = None
    """A job's delay that no sweep of this node has checked yet."""
    history: Annotated[list[StateChange], Field(max_length=MOST_HISTORY)] = Field(default_factory=list)
    """State changes, with the newest one last."""
    quarantines: Annotated[list[datetime], Field(max_length=16)] = Field(default_factory=list)
    """Times of the last quarantines."""
    actions: Annotated[list[Action], Field(max_length=MOST_ACTIONS)] = Field(default_factory=list)
    sweep: SweepRef | None = None
    sweeps: int = 0
    """Number of sweeps started so far."""
    swept: datetime | None = None
    """Time of the last sweep with a verdict."""
    failures: int = 0
    """Number of consecutive failed retests."""
    repair: RepairStatus = Field(default_factory=RepairStatus)
    silent_since: datetime | None = None
    """Time at which the node's telemetry stopped. Absent if telemetry arrives."""
    exemption: ExemptStatus | None = None
    internal: NodeHealthInternal = Field(default_factory=NodeHealthInternal)


class NodeHealth(Model):
    """The health of one node's hardware."""

    api_version: Literal["convoy.dev/v1alpha1"] = "convoy.dev/v1alpha1"
    kind: Literal["NodeHealth"] = "NodeHealth"
    metadata: ObjectMeta
    spec: NodeHealthSpec = Field(default_factory=NodeHealthSpec)
    status: NodeHealthStatus = Field(default_factory=NodeHealthStatus)


KIND = Kind(
    NodeHealth,
    plural="nodehealths",
    short=("nh",),
    scope=Scope.CLUSTER,
    columns=(
        Column("Node", ".status.nodeRef.name"),
        Column("State", ".status.state"),
        Column("Since", ".status.since", "date"),
        Column("Qualified", '.status.conditions[?(@.type=="Qualified")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Qualified")].reason'),
        Column("Lemon", ".status.lemonScore", "number"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Until", ".status.qualifiedUntil", "string", wide=True),
        Column("Rack", ".status.nodeRef.rack", wide=True),
        Column("Repair", ".status.repair.action", wide=True),
        Column("Message", ".status.message", wide=True),
    ),
    selectable=(".status.state", ".status.nodeRef.name"),
    editors=Editors.CLUSTER_ADMINS,
)
