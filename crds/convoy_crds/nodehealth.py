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
"""An exemption ends after this, whatever its `until` says."""

_Name = Annotated[str, Field(max_length=253)]
_Text = Annotated[str, Field(max_length=1024)]
_Words = Annotated[str, Field(min_length=1, max_length=1024)]


class State(StrEnum):
    """Where the hardware stands."""

    UNVERIFIED = "Unverified"
    """In service, though no sweep that still counts has passed it."""
    GATED = "Gated"
    """Takes no pods until it is swept."""
    SWEEPING = "Sweeping"
    QUALIFIED = "Qualified"
    SUSPECT = "Suspect"
    """In service, but taken last."""
    QUARANTINED = "Quarantined"
    """Takes no more pods; its jobs are asked to save and move."""
    DRAINING = "Draining"
    REPAIRING = "Repairing"
    REQUALIFYING = "Requalifying"
    PROBATION = "Probation"
    """In service after a repair, and watched."""
    CONDEMNED = "Condemned"
    EXEMPT = "Exempt"
    """People have asked that it be left alone."""


class Verdict(StrEnum):
    """What a sweep found."""

    PASS = "Pass"  # noqa: S105 - no password
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"


class EvidenceKind(StrEnum):
    """Where evidence comes from; two kinds that agree confirm one another."""

    ONLINE = "Online"
    """From the steps of jobs."""
    SWEEP = "Sweep"
    """From tests."""


class ManualDecision(Model):
    """A decision of people: why, and by whom."""

    reason: _Words
    user: Annotated[str, Field(min_length=1, max_length=253)]


class Exempt(ManualDecision):
    """Leaves the node alone for a while: nothing is done about it, and nothing is held against it."""

    until: datetime
    """At most 72 hours after it was asked for; later is cut short."""


class Release(ManualDecision):
    """Puts the node back into service, on probation, and forgets what was held against it. It acts once."""

    at: datetime
    """Another time is another release."""


class NodeHealthSpec(Model):
    """What people say of the hardware; all else is found out."""

    model_config = validated(
        Rule(
            "!has(self.exempt) || !has(self.condemned)",
            "a node is exempt or condemned, not both: remove one of them",
        )
    )

    exempt: Exempt | None = None
    condemned: ManualDecision | None = None
    """Takes it out of service until this is removed; then it is retested."""
    release: Release | None = None


class NodeRef(StatusModel):
    """The node that the hardware is, or was last."""

    name: _Name = ""
    uid: Annotated[str, Field(max_length=64)] = ""
    rack: _Name = ""
    driver: Annotated[str, Field(max_length=128)] = ""
    boot_id: Annotated[str, Field(max_length=64)] = ""


class Provenance(StatusModel):
    """Under what a test was made."""

    driver: Annotated[str, Field(max_length=128)] = ""
    firmware: Annotated[str, Field(max_length=128)] = ""
    kernel: Annotated[str, Field(max_length=128)] = ""
    power_cap: Annotated[str, Field(max_length=32)] = ""
    suite: Annotated[str, Field(max_length=64)] = ""
    """Version of the sweep."""


class Evidence(StatusModel):
    """One thing that speaks against the hardware."""

    kind: EvidenceKind
    source: _Name
    """The job (namespace/name) or HealthSweep."""
    cause: Annotated[str, Field(max_length=64)] = ""
    since: datetime
    seen: datetime
    """When it was last so."""
    loss: float = 0.0
    """GPU-seconds that it has cost since."""
    forgiven: float = 0.0
    """Of these, those before the last sweep that passed."""
    slowdown: float = 0.0
    """1.1 for a tenth slower than its peers."""
    message: _Text = ""
    provenance: Provenance | None = None


class Notice(StatusModel):
    """What a job saw of the node that may lie in it and need not: a reason to sweep it once it is idle."""

    job: _Name
    """namespace/name."""
    cause: Annotated[str, Field(max_length=64)]
    """Input or Host."""
    at: datetime
    slowdown: float
    """1.1 for a step that would be a tenth shorter."""


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
    """Whether an action did the jobs the good that was predicted."""

    PENDING = "Pending"
    RIGHT = "Right"
    WRONG = "Wrong"
    UNKNOWN = "Unknown"


class PaceRecord(StatusModel):
    """How fast a job was when it was moved, and what that was to bring."""

    job: _Name
    """namespace/name."""
    uid: Annotated[str, Field(max_length=64)] = ""
    """Of the job: another one may get its name."""
    incarnation: int = 0
    ranks: int = 0
    seconds: float
    """Of a step."""
    error: float = 0.0
    """Standard error of that."""
    gain: float
    """Seconds by which a step was to be shorter."""
    others: Annotated[list[_Name], Field(max_length=16)] = Field(default_factory=list)
    """Nodes that the job accused at the same time: while it is on them, nothing is gained."""
    cause: Annotated[str, Field(max_length=64)] = ""
    slow: Annotated[list[int], Field(max_length=64)] = Field(default_factory=list)
    """Ranks on this node that kept the others waiting."""
    followed: bool = False
    """Whether they did so elsewhere as well: it was not the node."""


class Action(StatusModel):
    """A drain that was begun: a token of every budget."""

    at: datetime
    rack: _Name = ""
    jobs: Annotated[list[_Name], Field(max_length=64)] = Field(default_factory=list)
    paces: Annotated[list[PaceRecord], Field(max_length=16)] = Field(default_factory=list)
    """Of those that held something against the node."""
    outcome: Outcome = Outcome.PENDING
    decided: datetime | None = None


class SweepCause(StrEnum):
    """Why a node is swept."""

    JOINED = "Joined"
    """It was seen for the first time, and takes no pods before."""
    RETURNING = "Returning"
    """It was drained, and perhaps repaired."""
    SUSPECTED = "Suspected"
    EXPIRED = "Expired"
    """Its qualification has run out."""
    NOTICED = "Noticed"
    """A job saw what may lie in it and need not."""
    ROUTINE = "Routine"


class SweepRef(StatusModel):
    """A sweep that is under way for this node."""

    name: _Name
    since: datetime
    cause: SweepCause = SweepCause.SUSPECTED


class RepairStatus(StatusModel):
    """The step of the ladder that is tried."""

    step: int = 0
    """From 0."""
    action: Repair | None = None
    owner: _Name = ""
    since: datetime | None = None
    """When it was handed to its owner; absent while it waits."""


class ExemptStatus(StatusModel):
    """An exemption that is in force, or has run out."""

    since: datetime
    until: datetime
    """As asked for."""
    before: State


class NodeHealthStatus(StatusModel):
    """What is known, and what is done about it. All that decisions need to remember is here."""

    state: State = State.UNVERIFIED
    since: datetime | None = None
    """Absent before the first decision."""
    message: _Text = ""
    node_ref: NodeRef = Field(default_factory=NodeRef)
    policy: _Name = ""
    conditions: Annotated[list[Condition], Field(max_length=8, json_schema_extra=map_list("type"))] = Field(
        default_factory=list
    )
    qualified_until: datetime | None = None
    lemon_score: float = 0.0
    """Quarantines, each halved with every 30 days since."""
    evidence: Annotated[list[Evidence], Field(max_length=MOST_EVIDENCE)] = Field(default_factory=list)
    confirmed_at: datetime | None = None
    """When the evidence became enough to act on."""
    noticed: Notice | None = None
    """Until a sweep has looked into it."""
    looked_at: datetime | None = None
    """When one last did."""
    history: Annotated[list[StateChange], Field(max_length=MOST_HISTORY)] = Field(default_factory=list)
    """The newest last."""
    quarantines: Annotated[list[datetime], Field(max_length=16)] = Field(default_factory=list)
    actions: Annotated[list[Action], Field(max_length=MOST_ACTIONS)] = Field(default_factory=list)
    holds_token: bool = False
    """Of the pool and the rack of its last action: it is being drained or repaired."""
    sweep: SweepRef | None = None
    sweeps: int = 0
    """Begun so far: the next one's name follows from it."""
    swept: datetime | None = None
    """When a sweep last had a verdict."""
    inconclusive: int = 0
    """Sweeps in a row without a verdict."""
    failures: int = 0
    """Retests failed in a row."""
    repair: RepairStatus = Field(default_factory=RepairStatus)
    clean_since: datetime | None = None
    """Since when nothing speaks against it, time without telemetry not counted."""
    silent_since: datetime | None = None
    """Since when its telemetry is lost; absent while it is not."""
    exemption: ExemptStatus | None = None
    condemned_by_hand: bool = False
    released_at: datetime | None = None
    """The `at` of the last release that was acted on."""


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
