"""The status of a SpotPool: its nodes, notices, preemptions and cost."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from convoy_crds.meta import Bookkeeping, Condition, StatusModel, map_list

MAX_NODES = 1000
"""Maximum number of nodes of a pool."""
MAX_PAST_NOTICES = 64
"""Maximum number of notices about nodes that have left in the status."""
MAX_NAMESPACES = 256
"""Maximum number of namespaces in the status."""
MAX_GRANTS = 256
"""Maximum number of roles that a pool serves."""
MAX_SPANS = 16
"""Maximum number of spans of provisional cost in the status."""
MAX_SAMPLES = 64
"""Maximum number of notice times that the status keeps."""


class CapacityMode(StrEnum):
    """Capacity on which the pool places pods."""

    SPOT = "Spot"
    """New pods are placed on the spot nodes of `selector`."""
    ON_DEMAND = "OnDemand"
    """New pods are placed on the nodes of `fallback.onDemandSelector`."""


class NoticeSource(StrEnum):
    """Origin of a notice."""

    TAINT = "Taint"
    """A taint that another controller added to the Node."""
    CONDITION = "Condition"
    """A condition that another controller set on the Node."""
    AWS = "AWS"
    """The instance metadata of Amazon EC2."""
    GCP = "GCP"
    """The metadata server of Google Compute Engine."""
    AZURE = "Azure"
    """The scheduled events of Azure."""
    FAKE = "Fake"
    """The endpoint for tests."""
    SIGTERM = "Sigterm"
    """The node's agent was stopped because the node shuts down."""
    RAY = "Ray"
    """The driver of a job reported the node as draining."""


class NoticeKind(StrEnum):
    """Event that a notice announces."""

    PREEMPTION = "Preemption"
    """The provider takes the node back at the deadline."""
    REMOVAL = "Removal"
    """A controller in the cluster removes the node, for example an autoscaler. This is no interruption."""
    REBALANCE = "Rebalance"
    """The provider warns that a preemption has become more likely."""


class NoticeState(StrEnum):
    """State of a noticed node."""

    NOTICED = "Noticed"
    """The node gets no more pods. The pods on it work on until shortly before the deadline."""
    DRAINING = "Draining"
    """The pool's pods on the node are evicted."""
    GONE = "Gone"
    """The node has left."""
    FALSE_ALARM = "FalseAlarm"
    """The deadline passed, and the node is still ready. It gets pods again."""
    WITHDRAWN = "Withdrawn"
    """All sources withdrew the notice before the deadline. The node gets pods again."""

    @property
    def holds(self) -> bool:
        """Return True if the notice is still believed."""
        return self in (NoticeState.NOTICED, NoticeState.DRAINING)


class PriceStatus(StatusModel):
    """The price of a spot node at the latest reconcile."""

    per_hour: float = 0.0
    """Price that counts. If the spot price is unknown or too old, this is the on-demand price."""
    known: bool = False
    """True if the spot price is known and not too old."""
    as_of: datetime | None = None
    """Time at which the price was read, according to the spec or to the trace."""


class SpotNodes(StatusModel):
    """Number of nodes of the pool by state."""

    booting: int = 0
    """Nodes that have never been ready."""
    ready: int = 0
    noticed: int = 0
    draining: int = 0
    lost: int = 0
    """Nodes that exist but have stopped reporting."""
    gone: int = 0
    """Nodes that have left since the pool exists."""
    on_demand: int = 0
    """On-demand nodes that run pods of the pool."""


class NodeNotice(StatusModel):
    """A notice about one node, merged from all its sources."""

    node: str
    """Name of the node."""
    node_uid: str
    boot_id: str = ""
    kind: NoticeKind = NoticeKind.PREEMPTION
    state: NoticeState = NoticeState.NOTICED
    at: datetime
    """Time at which Convoy first learned of the notice."""
    deadline: datetime | None = None
    """Earliest time at which the node may disappear, over all sources. Absent for Rebalance."""
    assumed: bool | None = None
    """True if no source gave the deadline, so that it follows from `spec.notice.minSeconds`. Absent
    otherwise.
    """
    silent_since: datetime | None = None
    """Time since which no source gives the notice any more."""
    sources: Annotated[list[NoticeSource], Field(max_length=len(NoticeSource))] = Field(default_factory=list)
    repeats: int = 0
    """Number of further notices for the same node and boot. They have no effect of their own."""


class Preemptions(StatusModel):
    """Nodes that the provider has taken back since the pool was created, and other nodes that have left or
    returned.
    """

    total: int = 0
    with_notice: int = 0
    without_notice: int = 0
    false_alarms: int = 0
    """Number of notices after whose deadline the node was still ready."""
    removals: int = 0
    """Number of nodes that a controller in the cluster removed. They are no preemptions."""
    returned: int = 0
    """Number of nodes that were silent for so long that they counted as lost, and then came back without a
    reboot. `total` and `removals` include them.
    """
    last_at: datetime | None = None


class NoticeSeconds(StatusModel):
    """Seconds from the first sign of a notice to the loss of the node, over the latest preemptions."""

    p50: float = 0.0
    min: float = 0.0


class NamespaceSpend(StatusModel):
    """Cost of the nodes while pods of one namespace used them."""

    namespace: str
    spend: float = 0.0


class SpotCost(StatusModel):
    """Cost of the pool's nodes since the pool exists. `spot` and `onDemand` together equal the sum of
    `byNamespace`, `unused` and `residual`.
    """

    currency: str = ""
    spot: float = 0.0
    """Cost of the spot nodes. A node counts from its creation to its deletion."""
    on_demand: float = 0.0
    """Cost of on-demand nodes, while they ran pods of the pool. Pools that use a node at the same time share
    its cost equally.
    """
    by_namespace: Annotated[
        list[NamespaceSpend],
        Field(max_length=MAX_NAMESPACES, json_schema_extra=map_list("namespace")),
    ] = Field(default_factory=list)
    """Cost of the time in which pods of a namespace used a node. Namespaces on one node share its cost
    equally.
    """
    unused: float = 0.0
    """Cost of the time in which no pod of the pool used a node."""
    residual: float = 0.0
    """Cost of the time that Convoy did not observe, for example while no operator ran."""
    provisional: float = 0.0
    """Part of the cost that counts at the on-demand price, because the spot price was unknown. Convoy
    corrects it when the price becomes known.
    """
    per_hour: float = 0.0
    """Cost of the present nodes per hour, at the present price."""
    as_of: datetime | None = None
    """Time up to which the cost counts."""


class Grant(StatusModel):
    """Number of pods that a role may place on the pool's nodes."""

    namespace: str
    job: str
    role: str
    pods: int = 0
    mode: CapacityMode = CapacityMode.SPOT
    """Capacity on which new pods of the role are placed."""
    reason: str = ""
    """Reason for which the role has fewer pods than it wants; empty if it has all of them."""
    message: str = ""


class NodeRecord(Bookkeeping):
    """The history of a spot node."""

    name: str
    uid: str
    boot_id: str = ""
    booted: bool = False
    """True after the node was ready for the first time."""
    silent_since: datetime | None = None
    """Time since which the node, once ready, has not been ready."""
    lost_at: datetime | None = None
    """Time at which the node's loss was counted; absent for a node that is not lost."""
    cordoned: bool = False
    """True if the node was cordoned when it was last seen. Its end is then no preemption."""


class ProvisionalCost(Bookkeeping):
    """A span of time in which spot nodes count at the on-demand price until the spot price is known."""

    since: datetime
    until: datetime
    seconds: Annotated[dict[str, float], Field(max_length=MAX_NAMESPACES + 2)] = Field(default_factory=dict)
    """Node-seconds by namespace. The names `` and `*` mean unused and unobserved time."""
    cost: Annotated[dict[str, float], Field(max_length=MAX_NAMESPACES + 2)] = Field(default_factory=dict)
    """Amount by which these seconds have raised the cost, by namespace."""


class SpotInternal(Bookkeeping):
    """Data that only the operator reads."""

    nodes: Annotated[list[NodeRecord], Field(max_length=MAX_NODES)] = Field(default_factory=list)
    on_demand: Annotated[list[str], Field(max_length=MAX_NODES)] = Field(default_factory=list)
    """Uids of the on-demand nodes that ran pods of the pool."""
    notice_seconds: Annotated[list[float], Field(max_length=MAX_SAMPLES)] = Field(default_factory=list)
    interruptions: Annotated[list[datetime], Field(max_length=MAX_NODES + 1)] = Field(default_factory=list)
    """Times of the preemptions within the last hour."""
    short_since: datetime | None = None
    """Time since which granted pods have had no ready spot node."""


class SpotPoolStatus(StatusModel):
    """Nodes, notices, preemptions and cost of the pool."""

    observed_generation: int = 0
    conditions: Annotated[list[Condition], Field(max_length=8, json_schema_extra=map_list("type"))] = Field(
        default_factory=list
    )
    mode: CapacityMode = CapacityMode.SPOT
    mode_since: datetime | None = None
    """Time at which the mode last changed."""
    price: PriceStatus = Field(default_factory=PriceStatus)
    nodes: SpotNodes = Field(default_factory=SpotNodes)
    notices: Annotated[list[NodeNotice], Field(max_length=MAX_NODES + MAX_PAST_NOTICES)] = Field(
        default_factory=list
    )
    """Notices about present nodes, and the latest ones about others."""
    preemptions: Preemptions = Field(default_factory=Preemptions)
    notice_seconds: NoticeSeconds | None = None
    """Absent before the first preemption with a notice."""
    cost: SpotCost = Field(default_factory=SpotCost)
    provisional: Annotated[list[ProvisionalCost], Field(max_length=MAX_SPANS)] = Field(default_factory=list)
    """Parts of the cost, in order of time, that Convoy corrects when their price becomes known."""
    grants: Annotated[list[Grant], Field(max_length=MAX_GRANTS)] = Field(default_factory=list)
    """Pods that each role may place on the pool's nodes."""
    internal: SpotInternal = Field(default_factory=SpotInternal)
