"""GuardPolicy: settings for detecting slow nodes and acting on them, with budgets that limit the actions.

With the default settings Convoy observes nodes and changes nothing.
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
    """Rule that permits or forbids Convoy to act on nodes."""

    OBSERVE = "Observe"
    """Convoy only updates the state and conditions of NodeHealth. It does not taint, drain or repair nodes.
    """
    ACT = "Act"
    """Convoy taints, sweeps, drains and repairs nodes, within the budgets."""


class OnJoin(StrEnum):
    """Treatment of hardware that is new, or whose qualification has expired."""

    ACCEPT = "Accept"
    """The node is in service at once, in the state Unverified."""
    GATE = "Gate"
    """The node gets no pods until it passes a sweep. A node that is older than the policy, or that runs
    pods, is accepted without a sweep.
    """


class Detection(Model):
    """Thresholds of the online detector. A finding above the thresholds counts as evidence. A weaker
    finding is only reported.
    """

    least_slowdown_percent: Percent = 5
    """Minimum slowdown, in percent, at which a node counts as slow. The node is compared with its peers.
    Healthy hardware varies by a few percent. Use 10 or more for nodes that also run other workloads.
    """
    lasting: Duration = "5m"
    """Minimum time for which the slowdown must last without a break."""


class Sweeps(Model):
    """Settings for health tests of idle nodes."""

    at_once_percent: Percent = 5
    """Maximum number of nodes that are swept at the same time, in percent of the policy's nodes. At least
    one node is allowed.
    """
    time_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Share of the nodes' time, in percent, for routine sweeps of idle nodes. Routine sweeps test nodes
    without a verdict, and nodes that are likely to have become faulty since their last sweep. Each sweep
    counts as ten minutes. A sweep uses the whole node, so set this only if the nodes run nothing but
    TrainingJobs. 0 disables routine sweeps.
    """
    deadline: Duration = "45m"
    """Time after which a sweep without a verdict is Inconclusive."""


class Budgets(Model):
    """Limits on simultaneous actions. Convoy takes an action only if all budgets allow the action."""

    pool_percent: Percent = 2
    """Maximum number of nodes that are drained or repaired at the same time, in percent of the policy's
    nodes. At least one node is allowed.
    """
    per_rack: Annotated[int, Field(ge=1, le=1000)] = 1
    """Maximum number of nodes of one rack that are drained or repaired at the same time."""
    rack_label: Annotated[str, Field(min_length=1, max_length=317)] = "topology.kubernetes.io/rack"
    """Node label whose value is the name of the rack. A node without the label belongs to no rack."""
    job_interval: Duration = "30m"
    """Minimum time between the drains of two nodes of the same job."""
    fleet_percent_per_hour: Percent = 5
    """Maximum number of drains that are started within an hour, in percent of the policy's nodes. At least
    one drain is allowed.
    """
    quarantined_percent: Percent = 5
    """Maximum number of nodes that are quarantined, drained, repaired or retested at the same time, in
    percent of the policy's nodes. At least two nodes are allowed.
    """
    reserved_spares: Count = 0
    """Number of idle nodes in service that Convoy keeps in reserve. Convoy swaps a job off a node only if
    more nodes than this number are idle.
    """


class Breaker(Model):
    """Circuit breaker. It stops quarantines and drains if so many nodes seem faulty that the detector
    itself may be wrong. It never stops repairs, retests or returns to service.
    """

    confirmed_percent: Percent = 5
    """The breaker opens if more than this percentage of the nodes, and more than two nodes, are confirmed
    faulty within `window`.
    """
    window: Duration = "10m"
    """Time window for `confirmedPercent`."""
    suspect_percent: Percent = 20
    """The breaker opens if more than this percentage of the nodes, and more than two nodes, are Suspect at
    the same time.
    """
    shared_percent: Percent = 60
    """The breaker opens if at least this percentage of the confirmed nodes share a rack, driver or job. At
    least three nodes must be confirmed. A property that at least half of all nodes share is ignored.
    """
    success_percent: Percent = 70
    """The breaker opens if fewer than this percentage of the latest drains sped up the affected jobs. The
    rule counts the latest ten drains and needs at least four.
    """
    half_open_after: Duration = "15m"
    """Time after which an open breaker allows one trial: the drain of a node that has failed a sweep. The
    result of the trial closes or reopens the breaker.
    """


class Repair(StrEnum):
    """A step of the repair ladder."""

    RESET = "Reset"
    """Reset of the node's accelerators."""
    REBOOT = "Reboot"
    REIMAGE = "Reimage"
    REPLACE = "Replace"


class RepairStep(Model):
    """One step of the repair ladder: the action, its owner and its timeout."""

    action: Repair
    owner: Annotated[str, Field(min_length=1, max_length=253)] = "manual"
    """Name of the controller in the cluster that does the repair. The controller finds its name in the
    NodeHealth.
    """
    timeout: Duration = "1h"
    """Time after which Convoy continues with the next step."""


class Repairs(Model):
    """Settings for repairs of a drained node."""

    ladder: Annotated[list[RepairStep], Field(max_length=8, json_schema_extra=map_list("action"))] = Field(
        default_factory=list
    )
    """Repair steps in order. After each failed retest Convoy continues with the next step. If the ladder is
    empty, the node is only retested.
    """


class Drain(Model):
    """Settings for swapping jobs off a quarantined node."""

    checkpoint_wait: Duration = "10m"
    """Maximum time that a quarantined node waits until its jobs have saved their state."""
    timeout: Duration = "30m"
    """Time after which an unfinished drain is reported as blocked. Convoy never forces pods off a node."""
    swap_cost: Duration = "10m"
    """Assumed time that a swap costs a job, until Convoy has measured the time. Convoy swaps a job off a
    slow node when the slow node has cost the job more than this time.
    """


class Qualification(Model):
    """Times and counts by which a node is qualified, cleared or condemned."""

    expiry: Duration = "336h"
    """Time for which a passed sweep is valid. After it, the node stays in service until its next sweep."""
    suspect_clears: Duration = "24h"
    """Time without evidence after which a Suspect node is cleared."""
    probation: Duration = "24h"
    """Time that a repaired node spends in Probation."""
    condemn_after_failures: Annotated[int, Field(ge=1, le=10)] = 2
    """Number of consecutive failed retests after which a node is condemned."""
    condemn_after_quarantines: Annotated[int, Field(ge=2, le=10)] = 3
    """Number of quarantines within `quarantineWindow` after which a node is condemned."""
    quarantine_window: Duration = "720h"
    """Time window for `condemnAfterQuarantines`."""


class GuardPolicySpec(Model):
    """The nodes that the policy covers, the evidence that counts against a node, and the actions that
    Convoy may take.
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
    """If several policies cover a node, the policy with the highest priority applies. If priorities are
    equal, the policy whose name is first in alphabetical order applies.
    """
    mode: Mode = Mode.OBSERVE
    on_join: OnJoin = OnJoin.ACCEPT
    detection: Detection = Field(default_factory=Detection)
    sweeps: Sweeps | None = None
    """If absent, Convoy sweeps no node. A drained node then stays out of service until an administrator
    sets spec.release of its NodeHealth.
    """
    budgets: Budgets = Field(default_factory=Budgets)
    breaker: Breaker = Field(default_factory=Breaker)
    drain: Drain = Field(default_factory=Drain)
    repair: Repairs = Field(default_factory=Repairs)
    qualification: Qualification = Field(default_factory=Qualification)


class BreakerState(StrEnum):
    """State of the circuit breaker. `Closed` allows actions, `Open` stops them, and `HalfOpen` allows one
    trial.
    """

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


class BreakerStatus(StatusModel):
    """State of the policy's circuit breaker."""

    state: BreakerState = BreakerState.CLOSED
    since: datetime | None = None
    """Time of the last state change. Absent if the breaker has never opened. Confirmations and drain
    outcomes from before the breaker last closed do not count.
    """
    reason: Annotated[str, Field(max_length=64)] = ""
    message: Annotated[str, Field(max_length=1024)] = ""
    trial: Annotated[str, Field(max_length=253)] = ""
    """Name of the NodeHealth of the trial node, while the breaker is half open. Empty if no trial has
    started.
    """


class GuardPolicyStatus(StatusModel):
    """Number of the policy's nodes by state, and state of the circuit breaker."""

    observed_generation: int = 0
    conditions: Annotated[list[Condition], Field(max_length=8, json_schema_extra=map_list("type"))] = Field(
        default_factory=list
    )
    nodes: int = 0
    states: Annotated[dict[str, int], Field(max_length=16)] = Field(default_factory=dict)
    """Number of nodes in each state. The keys are the states in lower case."""
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
    marks_nodes=True,
)
