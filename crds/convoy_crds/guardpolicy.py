"""GuardPolicy: settings for detecting slow nodes and acting on them, with budgets that limit the actions.

With the defaults Convoy observes nodes and changes nothing.
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
    """Permission to act on nodes."""

    OBSERVE = "Observe"
    """Convoy updates only the state and conditions of NodeHealth: no taints, drains or repairs."""
    ACT = "Act"
    """Convoy taints, sweeps, drains and repairs nodes, within the budgets."""


class OnJoin(StrEnum):
    """Treatment of hardware that is new or whose qualification has expired."""

    ACCEPT = "Accept"
    """The node is in service at once, in state Unverified."""
    GATE = "Gate"
    """The node gets no pods until it passes a sweep. Nodes that are older than the policy, or that run
    pods, are accepted.
    """


class Detection(Model):
    """Thresholds above which a finding of the online detector counts as evidence. Weaker findings are only
    reported.
    """

    least_slowdown_percent: Percent = 5
    """Slowdown against its peers, in percent, from which a node counts as slow. Healthy hardware varies
    by a few percent. Use 10 or more for nodes shared with other workloads.
    """
    lasting: Duration = "5m"
    """Time for which the slowdown must last without a break."""


class Sweeps(Model):
    """Health tests of idle nodes."""

    at_once_percent: Percent = 5
    """Most nodes swept at one time, in percent of the policy's nodes. At least one node is allowed."""
    time_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Share of the nodes' time, in percent, for routine sweeps of idle nodes. They cover nodes without a
    verdict and nodes that are likely to be faulty by now. Each sweep counts as ten minutes and uses the
    whole node, so set this only if the nodes run nothing but TrainingJobs. 0 disables routine sweeps.
    """
    deadline: Duration = "45m"
    """Time after which a sweep without a verdict is Inconclusive."""


class Budgets(Model):
    """Limits on simultaneous actions. Convoy acts only if every budget allows the action."""

    pool_percent: Percent = 2
    """Most nodes that are drained or repaired at one time, in percent of the policy's nodes. At least one
    node is allowed.
    """
    per_rack: Annotated[int, Field(ge=1, le=1000)] = 1
    """Most nodes of one rack that are drained or repaired at one time."""
    rack_label: Annotated[str, Field(min_length=1, max_length=317)] = "topology.kubernetes.io/rack"
    """Node label that names the rack. Nodes without the label belong to no rack."""
    job_interval: Duration = "30m"
    """Least time between the drains of two nodes of the same job."""
    fleet_percent_per_hour: Percent = 5
    """Most drains started within an hour, in percent of the policy's nodes. At least one drain is allowed."""
    quarantined_percent: Percent = 5
    """Most nodes that are quarantined, drained, repaired or retested at one time, in percent of the
    policy's nodes. At least two nodes are allowed.
    """
    reserved_spares: Count = 0
    """Idle nodes in service that Convoy keeps free. It swaps a job off a node only if one more idle node is
    free.
    """


class Breaker(Model):
    """Circuit breaker: stops quarantines and drains when so many nodes look faulty that the detector itself
    is in doubt. It never stops repairs, retests or returns to service.
    """

    confirmed_percent: Percent = 5
    """The breaker opens if more than this percentage of nodes, and more than two, are confirmed faulty within
    `window`.
    """
    window: Duration = "10m"
    """Time window of `confirmedPercent`."""
    suspect_percent: Percent = 20
    """The breaker opens if more than this percentage of nodes, and more than two, are Suspect at one time."""
    shared_percent: Percent = 60
    """The breaker opens if at least this percentage of the confirmed nodes share a rack, driver or job. The
    rule needs three confirmed nodes, and ignores what half of all nodes have in common.
    """
    success_percent: Percent = 70
    """The breaker opens if fewer than this percentage of the latest actions sped up the affected jobs. The
    rule considers the latest ten actions and needs at least four.
    """
    half_open_after: Duration = "15m"
    """Time after which an open breaker lets one node through that has failed a sweep. The outcome of that
    action closes or reopens the breaker.
    """


class Repair(StrEnum):
    """A step of the repair ladder."""

    RESET = "Reset"
    """Reset of the accelerators."""
    REBOOT = "Reboot"
    REIMAGE = "Reimage"
    REPLACE = "Replace"


class RepairStep(Model):
    """One step of the repair ladder: the action, its owner and its timeout."""

    action: Repair
    owner: Annotated[str, Field(min_length=1, max_length=253)] = "manual"
    """Name of the cluster's controller that does the repair. The controller reads its name in the
    NodeHealth.
    """
    timeout: Duration = "1h"
    """Time after which Convoy goes on to the next step."""


class Repairs(Model):
    """Repairs of a drained node."""

    ladder: Annotated[list[RepairStep], Field(max_length=8, json_schema_extra=map_list("action"))] = Field(
        default_factory=list
    )
    """Steps in order: each failed retest leads to the next step. With an empty ladder the node is only
    retested.
    """


class Drain(Model):
    """Swap of jobs off a quarantined node."""

    checkpoint_wait: Duration = "10m"
    """Longest time that a quarantined node waits for its jobs to save their state."""
    timeout: Duration = "30m"
    """Time after which an unfinished drain is reported as blocked. Convoy never forces pods off a node."""
    swap_cost: Duration = "10m"
    """Time that a swap costs a job, until Convoy has measured it. Convoy swaps a job off a slow node once
    the slowness has cost the job more than this.
    """


class Qualification(Model):
    """Times and counts that decide when a node is qualified, cleared or condemned."""

    expiry: Duration = "336h"
    """Validity of a passed sweep. An expired node stays in service until its next sweep."""
    suspect_clears: Duration = "24h"
    """Time without evidence after which a Suspect node is cleared."""
    probation: Duration = "24h"
    """Time that a repaired node spends in Probation."""
    condemn_after_failures: Annotated[int, Field(ge=1, le=10)] = 2
    """Consecutive failed retests after which a node is condemned."""
    condemn_after_quarantines: Annotated[int, Field(ge=2, le=10)] = 3
    """Quarantines within `quarantineWindow` after which a node is condemned."""
    quarantine_window: Duration = "720h"
    """Time window of `condemnAfterQuarantines`."""


class GuardPolicySpec(Model):
    """Which nodes the policy covers, what counts as evidence against a node, and what Convoy may do about
    it.
    """

    model_config = validated(
        Rule(
            "!has(self.onJoin) || self.onJoin != 'Gate' || has(self.sweeps)",
            "onJoin: Gate keeps nodes out of service until they pass a sweep, but the policy has no "
            "sweeps: add spec.sweeps, or set onJoin: Accept",
            ".onJoin",
        ),
    )

    selector: NodeSelector = Field(default_factory=NodeSelector)
    """Nodes that the policy covers."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """If several policies cover a node, the highest priority wins, then the first name in alphabetical
    order.
    """
    mode: Mode = Mode.OBSERVE
    on_join: OnJoin = OnJoin.ACCEPT
    detection: Detection = Field(default_factory=Detection)
    sweeps: Sweeps | None = None
    """Absent: Convoy sweeps no node. A drained node then stays out of service until someone sets
    spec.release.
    """
    budgets: Budgets = Field(default_factory=Budgets)
    breaker: Breaker = Field(default_factory=Breaker)
    drain: Drain = Field(default_factory=Drain)
    repair: Repairs = Field(default_factory=Repairs)
    qualification: Qualification = Field(default_factory=Qualification)


class BreakerState(StrEnum):
    """State of the circuit breaker. `Closed` allows actions, `Open` stops them, `HalfOpen` allows one
    trial.
    """

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


class BreakerStatus(StatusModel):
    """The circuit breaker of a policy."""

    state: BreakerState = BreakerState.CLOSED
    since: datetime | None = None
    """Time of the last state change. Absent until the breaker first opens. Events before the breaker closed
    no longer count.
    """
    reason: Annotated[str, Field(max_length=64)] = ""
    message: Annotated[str, Field(max_length=1024)] = ""
    trial: Annotated[str, Field(max_length=253)] = ""
    """Name of the NodeHealth that the half-open breaker let through."""


class GuardPolicyStatus(StatusModel):
    """The policy's nodes, by state, and its circuit breaker."""

    observed_generation: int = 0
    conditions: Annotated[list[Condition], Field(max_length=8, json_schema_extra=map_list("type"))] = Field(
        default_factory=list
    )
    nodes: int = 0
    states: Annotated[dict[str, int], Field(max_length=16)] = Field(default_factory=dict)
    """Number of nodes by state, in lower case."""
    breaker: BreakerStatus = Field(default_factory=BreakerStatus)


class GuardPolicy(Model):
    """Rules for detecting slow hardware and acting on it, for some of the cluster's nodes."""

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
