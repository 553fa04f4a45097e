"""NodeHealth: what is known of one node's hardware, under whatever name its node has.

Its name is the hash of its accelerators' UUIDs, or the machine id where there are none.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.guardpolicy import Repair
from convoy_crds.kind import Column, Editors, Kind, Scope
from convoy_crds.meta import Condition, Model, ObjectMeta, Rule, StatusModel, map_list, validated

MOST_HISTORY = 32
MOST_EVIDENCE = 16
MOST_ACTIONS = 16
MOST_EXEMPT_HOURS = 72
"""Hours after which an exemption ends, even if its `until` is later."""

_Name = Annotated[str, Field(max_length=253)]
_Text = Annotated[str, Field(max_length=1024)]
_Words = Annotated[str, Field(min_length=1, max_length=1024)]


class State(StrEnum):
    """State of the hardware."""

    UNVERIFIED = "Unverified"
    """In service, but the node has no valid passed sweep."""
    GATED = "Gated"
    """Out of service until the node passes a sweep."""
    SWEEPING = "Sweeping"
    QUALIFIED = "Qualified"
    SUSPECT = "Suspect"
    """In service, but the scheduler avoids the node where possible."""
    QUARANTINED = "Quarantined"
    """Out of service: the node gets no more pods, and its jobs save their state for a swap to other nodes."""
    DRAINING = "Draining"
    REPAIRING = "Repairing"
    REQUALIFYING = "Requalifying"
    PROBATION = "Probation"
    """In service after a repair, under observation."""
    CONDEMNED = "Condemned"
    EXEMPT = "Exempt"
    """Left alone at an administrator's request."""


class Verdict(StrEnum):
    """Result of a sweep."""

    PASS = "Pass"  # noqa: S105 - no password
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"


class EvidenceKind(StrEnum):
    """Source of evidence. Two sources that agree confirm each other."""

    ONLINE = "Online"
    """Step times of jobs."""
    SWEEP = "Sweep"
    """Tests of a sweep."""


class ManualDecision(Model):
    """An administrator's decision, with the reason and the user."""

    reason: _Words
    user: Annotated[str, Field(min_length=1, max_length=253)]


class Exempt(ManualDecision):
    """Leaves the node alone for a while: Convoy does not act on the node and ignores evidence against it."""

    until: datetime
    """End of the exemption, at most 72 hours after the request. Convoy shortens a longer exemption."""


class Release(ManualDecision):
    """Returns the node to service on probation and discards the evidence against it. It applies once."""

    at: datetime
    """Time of the release. Another time makes it another release."""


class NodeHealthSpec(Model):
    """Administrators' decisions about the hardware. Convoy learns everything else itself."""

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
    """The node that the hardware belongs to, or last belonged to."""

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
    """The job (namespace/name) or the HealthSweep."""
    cause: Annotated[str, Field(max_length=64)] = ""
    since: datetime
    seen: datetime
    """Time of the latest observation."""
    loss: float = 0.0
    """GPU-seconds lost since `since`."""
    forgiven: float = 0.0
    """Part of `loss` from before the last passed sweep."""
    slowdown: float = 0.0
    """Duration relative to the node's peers: 1.1 is 10 % slower."""
    message: _Text = ""
    provenance: Provenance | None = None


class Notice(StatusModel):
    """Observation of a job that the node may have caused, but need not have. Convoy sweeps the node when it
    is idle.
    """

    job: _Name
    """Job as namespace/name."""
    cause: Annotated[str, Field(max_length=64)]
    """`Input` or `Host`."""
    at: datetime
    slowdown: float
    """Duration of a step relative to a step without the delay: 1.1 is 10 % longer."""


class StateChange(StatusModel):
    """One change of state."""

    at: datetime
    before: State
    after: State
    reason: Annotated[str, Field(max_length=64)]
    message: _Text = ""
    node: _Name = ""
    provenance: Provenance | None = None


class Outcome(StrEnum):
    """Result of an action, compared with the predicted gain."""

    PENDING = "Pending"
    RIGHT = "Right"
    WRONG = "Wrong"
    UNKNOWN = "Unknown"


class PaceRecord(StatusModel):
    """Speed of a job at its swap, and the predicted gain."""

    job: _Name
    """Job as namespace/name."""
    uid: Annotated[str, Field(max_length=64)] = ""
    """UID of the job, because another job may get the same name."""
    incarnation: int = 0
    ranks: int = 0
    seconds: float
    """Seconds per step."""
    error: float = 0.0
    """Standard error of `seconds`."""
    gain: float
    """Predicted decrease of the step time, in seconds."""
    others: Annotated[list[_Name], Field(max_length=16)] = Field(default_factory=list)
    """Other nodes that the job blamed at the same time. The swap shows no gain while the job runs on one of
    them.
    """
    cause: Annotated[str, Field(max_length=64)] = ""
    slow: Annotated[list[int], Field(max_length=64)] = Field(default_factory=list)
    """Ranks on this node that delayed the others."""
    followed: bool = False
    """True if the same ranks are slow on their new nodes too, so this node was not the cause."""


class Action(StatusModel):
    """A drain that Convoy started. Each drain counts against every budget."""

    at: datetime
    rack: _Name = ""
    jobs: Annotated[list[_Name], Field(max_length=64)] = Field(default_factory=list)
    paces: Annotated[list[PaceRecord], Field(max_length=16)] = Field(default_factory=list)
    """Speed of the jobs that blamed the node."""
    outcome: Outcome = Outcome.PENDING
    decided: datetime | None = None
    """Time at which the outcome was known."""


class SweepCause(StrEnum):
    """Reason for a sweep."""

    JOINED = "Joined"
    """The node is new. It gets no pods before the sweep."""
    RETURNING = "Returning"
    """The node was drained and, possibly, repaired."""
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


class RepairStatus(StatusModel):
    """The current step of the repair ladder."""

    step: int = 0
    """Index of the step in the ladder, from 0."""
    action: Repair | None = None
    owner: _Name = ""
    since: datetime | None = None
    """Time at which the step was handed to its owner. Absent while the step waits."""


class ExemptStatus(StatusModel):
    """An exemption that is active or has ended."""

    since: datetime
    until: datetime
    """Requested end."""
    before: State


class NodeHealthStatus(StatusModel):
    """State of the hardware, the evidence against it, and Convoy's actions. Decisions depend on no other
    memory.
    """

    state: State = State.UNVERIFIED
    since: datetime | None = None
    """Time of the last state change. Absent before the first decision."""
    message: _Text = ""
    node_ref: NodeRef = Field(default_factory=NodeRef)
    policy: _Name = ""
    conditions: Annotated[list[Condition], Field(max_length=8, json_schema_extra=map_list("type"))] = Field(
        default_factory=list
    )
    qualified_until: datetime | None = None
    """Time at which the latest passed sweep expires."""
    lemon_score: float = 0.0
    """Sum of the quarantines, each weighted with a half-life of 30 days."""
    evidence: Annotated[list[Evidence], Field(max_length=MOST_EVIDENCE)] = Field(default_factory=list)
    confirmed_at: datetime | None = None
    """Time at which the evidence became sufficient for a quarantine."""
    noticed: Notice | None = None
    """Observation of a job that no sweep has checked yet."""
    looked_at: datetime | None = None
    """Time at which a sweep last checked such an observation."""
    history: Annotated[list[StateChange], Field(max_length=MOST_HISTORY)] = Field(default_factory=list)
    """State changes, the newest last."""
    quarantines: Annotated[list[datetime], Field(max_length=16)] = Field(default_factory=list)
    """Times of the latest quarantines."""
    actions: Annotated[list[Action], Field(max_length=MOST_ACTIONS)] = Field(default_factory=list)
    holds_token: bool = False
    """True while the node is drained or repaired: it counts against the budgets of the pool and the rack."""
    sweep: SweepRef | None = None
    sweeps: int = 0
    """Number of sweeps started so far."""
    swept: datetime | None = None
    """Time of the last sweep with a verdict."""
    inconclusive: int = 0
    """Consecutive sweeps without a verdict."""
    failures: int = 0
    """Consecutive failed retests."""
    repair: RepairStatus = Field(default_factory=RepairStatus)
    clean_since: datetime | None = None
    """Time since which there is no evidence against the node. Time without telemetry does not count."""
    silent_since: datetime | None = None
    """Time since which the node's telemetry is missing. Absent while telemetry arrives."""
    exemption: ExemptStatus | None = None
    condemned_by_hand: bool = False
    """True if `spec.condemned` has condemned the node."""
    released_at: datetime | None = None
    """The `at` of the last release that took effect."""


class NodeHealth(Model):
    """Health of one node's hardware."""

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
