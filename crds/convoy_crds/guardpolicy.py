"""GuardPolicy: which nodes are watched for slowness, what may be done about it, and how much of it at a time.

The defaults watch and touch nothing.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.kind import Column, Editors, Kind, Scope
from convoy_crds.meta import Condition, Duration, Model, ObjectMeta, Rule, StatusModel, map_list, validated
from convoy_crds.selector import NodeSelector

Percent = Annotated[int, Field(ge=1, le=100)]
Count = Annotated[int, Field(ge=0, le=10_000)]


class Mode(StrEnum):
    """Whether nodes are touched."""

    OBSERVE = "Observe"
    """States and conditions of NodeHealth alone: no taint, no drain, no repair."""
    ACT = "Act"


class OnJoin(StrEnum):
    """What becomes of hardware that is seen for the first time, or whose qualification has run out."""

    ACCEPT = "Accept"
    """It is in service at once, unverified."""
    GATE = "Gate"
    """It takes no pods until a sweep has passed it. Nodes older than the policy, or with pods, are accepted.
    """


class Detection(Model):
    """What of the online detector counts as evidence. All else is only told."""

    least_slowdown_percent: Percent = 5
    """By how much slower than its peers a node must be. Hardware that is well differs by a few per cent; on
    nodes shared with others 10 or more is advised.
    """
    lasting: Duration = "5m"
    """For how long, without a break."""


class Sweeps(Model):
    """Tests of nodes that are out of work."""

    at_once_percent: Percent = 5
    """Of the nodes; one at least."""
    time_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Of the nodes' time, for sweeps that nothing asks for: of idle nodes that no sweep has judged, and of
    those where a fault is likely by now; each is taken for ten minutes. They use all of a node: only for
    nodes that run nothing but TrainingJobs. 0: none of these.
    """
    deadline: Duration = "45m"
    """A sweep that has no verdict by then was inconclusive."""


class Budgets(Model):
    """How much may be done at a time; every one of them must grant it."""

    pool_percent: Percent = 2
    """Nodes that are drained or repaired at one time, of the policy's; one at least."""
    per_rack: Annotated[int, Field(ge=1, le=1000)] = 1
    """So, within one rack."""
    rack_label: Annotated[str, Field(min_length=1, max_length=317)] = "topology.kubernetes.io/rack"
    """The node label that names the rack; nodes without one share none."""
    job_interval: Duration = "30m"
    """Between two nodes taken from one job."""
    fleet_percent_per_hour: Percent = 5
    """Nodes that begin to be drained within an hour; one at least."""
    quarantined_percent: Percent = 5
    """Nodes out of service on suspicion at one time, waiting, drained, repaired or retested; two at least."""
    reserved_spares: Count = 0
    """Idle nodes in service that must be left over; a job is only moved where one is there for it."""


class Breaker(Model):
    """When so much seems to be wrong that the guard rather doubts itself. It stops quarantines and drains,
    never repairs, retests or returns to service.
    """

    confirmed_percent: Percent = 5
    """Opens when more nodes than this, and more than two, are confirmed within `window`."""
    window: Duration = "10m"
    suspect_percent: Percent = 20
    """Opens when more nodes than this, and more than two, are suspect at one time."""
    shared_percent: Percent = 60
    """Opens when so many of at least three confirmed share a rack, driver or job that less than half of all
    nodes have.
    """
    success_percent: Percent = 70
    """Opens when fewer of the last actions, ten at most and four at least, did the jobs good."""
    half_open_after: Duration = "15m"
    """Then one node that failed a sweep is let through, and its outcome decides."""


class Repair(StrEnum):
    """A step of the ladder."""

    RESET = "Reset"
    """Of the accelerators."""
    REBOOT = "Reboot"
    REIMAGE = "Reimage"
    REPLACE = "Replace"


class RepairStep(Model):
    """One step, by whom, and for how long."""

    action: Repair
    owner: Annotated[str, Field(min_length=1, max_length=253)] = "manual"
    """Who does it: the name of a controller of the cluster's, which reads it from the NodeHealth."""
    timeout: Duration = "1h"
    """After which the next step's turn comes."""


class Repairs(Model):
    """What is tried with a node that was drained."""

    ladder: Annotated[list[RepairStep], Field(max_length=8, json_schema_extra=map_list("action"))] = Field(
        default_factory=list
    )
    """In this order, one step after each failed retest; without any the node is only retested."""


class Drain(Model):
    """How jobs are moved away."""

    checkpoint_wait: Duration = "10m"
    """So long a quarantined node waits for its jobs to save their state."""
    timeout: Duration = "30m"
    """After which a drain that is not over is reported as blocked; nothing is forced."""
    swap_cost: Duration = "10m"
    """What moving costs a job, until that was measured. A node whose slowness has cost it more is moved."""


class Qualification(Model):
    """What a node has to show, and for how long that counts."""

    expiry: Duration = "336h"
    """After a passed sweep. An expired node stays in service until its turn to be swept comes."""
    suspect_clears: Duration = "24h"
    """Without a sign of slowness."""
    probation: Duration = "24h"
    """After a repair."""
    condemn_after_failures: Annotated[int, Field(ge=1, le=10)] = 2
    """Failed retests in a row."""
    condemn_after_quarantines: Annotated[int, Field(ge=2, le=10)] = 3
    """Within `quarantineWindow`."""
    quarantine_window: Duration = "720h"


class GuardPolicySpec(Model):
    """Nodes, what counts against them, and what may be done."""

    model_config = validated(
        Rule(
            "!has(self.onJoin) || self.onJoin != 'Gate' || has(self.sweeps)",
            "onJoin: Gate keeps nodes out of service until a sweep has passed them, and there are none "
            "without sweeps: say onJoin: Accept",
            ".onJoin",
        ),
    )

    selector: NodeSelector = Field(default_factory=NodeSelector)
    """Nodes that the policy is for."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Of several policies for one node the highest rules, then the first by name."""
    mode: Mode = Mode.OBSERVE
    on_join: OnJoin = OnJoin.ACCEPT
    detection: Detection = Field(default_factory=Detection)
    sweeps: Sweeps | None = None
    """Absent: no node is swept. One that was drained then stays out of service until people release it."""
    budgets: Budgets = Field(default_factory=Budgets)
    breaker: Breaker = Field(default_factory=Breaker)
    drain: Drain = Field(default_factory=Drain)
    repair: Repairs = Field(default_factory=Repairs)
    qualification: Qualification = Field(default_factory=Qualification)


class BreakerState(StrEnum):
    """As of an electrical breaker: closed lets through."""

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


class BreakerStatus(StatusModel):
    """The breaker of a policy."""

    state: BreakerState = BreakerState.CLOSED
    since: datetime | None = None
    """Absent until it first opened. What happened before it closed is not counted any more."""
    reason: Annotated[str, Field(max_length=64)] = ""
    message: Annotated[str, Field(max_length=1024)] = ""
    trial: Annotated[str, Field(max_length=253)] = ""
    """The NodeHealth that was let through while half open."""


class GuardPolicyStatus(StatusModel):
    """What the policy is about at the moment."""

    observed_generation: int = 0
    conditions: Annotated[list[Condition], Field(max_length=8, json_schema_extra=map_list("type"))] = Field(
        default_factory=list
    )
    nodes: int = 0
    states: Annotated[dict[str, int], Field(max_length=16)] = Field(default_factory=dict)
    """By state in lower case, how many nodes are in it."""
    breaker: BreakerStatus = Field(default_factory=BreakerStatus)


class GuardPolicy(Model):
    """How slow hardware is found and dealt with, on some nodes."""

    api_version: Literal["convoy.dev/v1alpha1"] = "convoy.dev/v1alpha1"
    kind: Literal["GuardPolicy"] = "GuardPolicy"
    metadata: ObjectMeta
    spec: GuardPolicySpec = Field(default_factory=GuardPolicySpec)
    status: GuardPolicyStatus = Field(default_factory=GuardPolicyStatus)


KIND = Kind(
    GuardPolicy,
    plural="guardpolicies",
    short=("gp",),
    scope=Scope.CLUSTER,
    columns=(
        Column("Mode", ".spec.mode"),
        Column("OnJoin", ".spec.onJoin"),
        Column("Nodes", ".status.nodes", "integer"),
        Column("Suspect", ".status.states.suspect", "integer"),
        Column("Quarantined", ".status.states.quarantined", "integer"),
        Column("Condemned", ".status.states.condemned", "integer"),
        Column("Breaker", ".status.breaker.state"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Since", ".status.breaker.since", "date", wide=True),
        Column("Message", ".status.breaker.message", wide=True),
    ),
    editors=Editors.CLUSTER_ADMINS,
)
