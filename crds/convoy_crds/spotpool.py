"""SpotPool: nodes that the provider may take back at any time, and the jobs that may use them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from convoy_crds.allowed_namespaces import ALLOWED_NAMESPACES_RULE, AllowedNamespaces, allows
from convoy_crds.kind import Column, Editors, Kind, Scope
from convoy_crds.meta import Duration, Model, ObjectMeta, ObjectName, Rule, map_list, validated
from convoy_crds.selector import NodeSelector, some_label
from convoy_crds.spot_prices import MAX_PRICE
from convoy_crds.spotpool_status import MAX_NODES, SpotPoolStatus

MAX_PRICE_STEPS = 128
"""Maximum number of steps of a price in the spec. A trace in a ConfigMap may have more."""
Money = Annotated[float, Field(gt=0, le=1e12)]
PricePerHour = Annotated[float, Field(gt=0, le=MAX_PRICE)]


class PriceStep(Model):
    """The price from one time to the next step."""

    from_: Annotated[AwareDatetime, Field(alias="from")]
    """Time from which the price holds."""
    per_hour: PricePerHour


class TraceRef(Model):
    """A key of a ConfigMap with prices in CSV: the columns `time` and `perHour`."""

    config_map: ObjectName
    """ConfigMap in the operator's namespace."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", min_length=1, max_length=253)] = "prices.csv"
    """Key of the ConfigMap. Each row of its CSV has a time, in RFC 3339 or Unix seconds, and the price from
    then on. Times must increase. A row without a price is a gap.
    """


class SpotPrice(Model):
    """The price of a spot node per hour: one price, a few steps, or a trace."""

    model_config = validated(
        Rule(
            "[has(self.perHour), has(self.steps), has(self.trace)].filter(one, one).size() == 1",
            "price.spot needs exactly one of perHour, steps and trace",
        ),
    )

    per_hour: PricePerHour | None = None
    steps: (
        Annotated[
            list[PriceStep],
            Field(min_length=1, max_length=MAX_PRICE_STEPS, json_schema_extra=map_list("from")),
        ]
        | None
    ) = None
    """Prices from certain times on, in any order. Before the earliest step the on-demand price counts."""
    trace: TraceRef | None = None


class Price(Model):
    """The price of the pool's nodes. An unknown price never counts as 0."""

    on_demand_per_hour: PricePerHour
    """Price of an on-demand node per hour. It also counts for a spot node whose price is unknown."""
    spot: SpotPrice
    as_of: AwareDatetime | None = None
    """Time at which the spot price was read. Without it the on-demand price counts. For a trace, the
    annotation `convoy.dev/price-as-of` of the ConfigMap replaces this time.
    """
    max_age: Duration = "1h"
    """Time after `asOf` for which the spot price counts. After it the on-demand price counts."""
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] | None = None
    """Currency of all prices, such as `USD`. Convoy only shows the currency."""


class NamespaceBudget(Model):
    """Limit for each namespace alone."""

    max_spend: Money
    """Maximum cost of the time in which pods of the namespace use nodes of the pool."""


class SpotBudget(Model):
    """Limits on the cost of the pool. A limit that is absent does not apply."""

    model_config = validated(
        Rule(
            "!has(self.maxSpend) || !has(self.perNamespace) || self.perNamespace.maxSpend <= self.maxSpend",
            "perNamespace.maxSpend must not exceed maxSpend",
            ".perNamespace",
        ),
    )

    max_spend: Money | None = None
    """Maximum cost of the pool's nodes since the pool exists. When it is spent, the pool's pods are drained.
    """
    max_spend_per_hour: Money | None = None
    """Maximum cost per hour of the nodes that the pool uses, at the present price."""
    per_namespace: NamespaceBudget | None = None


class Metadata(StrEnum):
    """Metadata service that the agents of the pool's nodes poll for notices."""

    NONE = "None"
    """The agents poll no service."""
    AWS = "AWS"
    GCP = "GCP"
    AZURE = "Azure"
    FAKE = "Fake"
    """An endpoint for tests. The chart must allow it."""


class Rebalance(StrEnum):
    """Treatment of a warning that a preemption has become more likely."""

    IGNORE = "Ignore"
    """The warning is only shown."""
    CORDON = "Cordon"
    """The node gets no more pods. The pods on it stay."""


class NoticeSettings(Model):
    """Sources of notices, and their treatment."""

    taints: bool = True
    """True if taints and conditions that other controllers set on a Node count as notices."""
    metadata: Metadata = Metadata.NONE
    min_seconds: Annotated[int, Field(ge=0, le=3600)] = 15
    """Time that a notice without a deadline leaves, in seconds."""
    rebalance: Rebalance = Rebalance.IGNORE


class SpotDrain(Model):
    """Settings for evicting the pool's pods from a noticed node."""

    surrender_seconds: Annotated[int, Field(ge=0, le=3600)] = 5
    """Seconds before the deadline at which the pool's pods are evicted. Until then they work on. They get
    SIGTERM and may save their state within these seconds.
    """


class Fallback(Model):
    """Rules for placing pods on on-demand nodes while spot nodes are missing."""

    model_config = validated(some_label("onDemandSelector", "fallback.onDemandSelector"))

    on_demand_selector: NodeSelector
    """On-demand nodes that the pool may use, without spot nodes of any pool. They count only while they run
    pods of the pool.
    """
    spot_below: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    """Number of spot nodes below which pods are placed on on-demand nodes. Only spot nodes count that are
    ready and may get pods. If the jobs' pods need fewer nodes, that number counts instead. With 1, pods are
    placed there only while there is no such spot node.
    """
    after: Duration = "2m"
    """Time with fewer spot nodes than `spotBelow` after which pods are placed on on-demand nodes."""
    minimum_stay: Duration = "10m"
    """Minimum time for which pods are placed on on-demand nodes. After it, the pool returns to spot nodes as
    soon as `spotBelow` of them are ready, or a ready one has room.
    """
    probe: bool = False
    """True: if no spot node is ready after the minimum stay, one pod is evicted and placed on spot nodes, so
    that an autoscaler creates a node for it.
    """
    max_interruptions_per_hour: Annotated[int, Field(ge=1, le=MAX_NODES)] | None = None
    """Number of preemptions within an hour above which pods are placed on on-demand nodes at once. If absent,
    there is no limit.
    """


class SpotToleration(Model):
    """A taint that pods of the pool tolerate."""

    model_config = validated(
        Rule(
            "!self.key.startsWith('convoy.dev/')",
            "the pool's pods must not tolerate taints of Convoy: remove this toleration",
            ".key",
        ),
        Rule(
            "!has(self.value) || (has(self.operator) && self.operator == 'Equal')",
            "value needs operator Equal: operator Exists, the default, takes no value",
            ".value",
        ),
    )

    key: Annotated[str, Field(min_length=1, max_length=317)]
    operator: Literal["Exists", "Equal"] = "Exists"
    value: Annotated[str, Field(max_length=63)] | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. If absent, all effects are tolerated."""


class SpotPoolSpec(Model):
    """The nodes of the pool, their price, and their use."""

    model_config = validated(
        some_label("selector"),
        Rule(
            "!has(self.fallback) || !has(self.fallback.spotBelow) || self.maxNodes == 0 || "
            "self.fallback.spotBelow <= self.maxNodes",
            "fallback.spotBelow must not exceed maxNodes",
            ".fallback.spotBelow",
        ),
        ALLOWED_NAMESPACES_RULE,
    )

    selector: NodeSelector
    """Spot nodes of the pool. If several pools select a node, it belongs to the pool whose name is first in
    alphabetical order.
    """
    tolerations: Annotated[list[SpotToleration], Field(max_length=16)] = Field(default_factory=list)
    """Taints of the spot nodes that pods of the pool tolerate. Pods also tolerate the taints by which the
    large providers mark their spot nodes.
    """
    max_nodes: Annotated[int, Field(ge=0, le=MAX_NODES)]
    """Maximum number of nodes that pods of the pool use. 0 pauses the pool: it grants no pods, and evicts
    those that it has.
    """
    pods_per_node: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of the pool's pods that fit on one node. The pool grants at most `maxNodes` times this number of
    pods.
    """
    allowed_namespaces: AllowedNamespaces
    """Namespaces whose jobs may use the pool, or `*` for all."""
    price: Price
    budget: SpotBudget = Field(default_factory=SpotBudget)
    notice: NoticeSettings = Field(default_factory=NoticeSettings)
    drain: SpotDrain = Field(default_factory=SpotDrain)
    fallback: Fallback | None = None
    """If absent, pods wait for spot nodes."""

    def allows(self, namespace: str | None) -> bool:
        """Return True if jobs of the namespace may use the pool."""
        return allows(self.allowed_namespaces, namespace)


class SpotPool(Model):
    """Nodes that the provider may take back at any time. Convoy watches their notices, drains them, limits
    their cost and shows their use.
    """

    model_config = validated(
        Rule(
            "size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",
            "the name of a SpotPool must have at most 63 characters and no dot, because pods carry it as a "
            "label",
        ),
    )

    api_version: Literal["convoy.dev/v1alpha1"] = "convoy.dev/v1alpha1"
    kind: Literal["SpotPool"] = "SpotPool"
    metadata: ObjectMeta
    spec: SpotPoolSpec
    status: SpotPoolStatus = Field(default_factory=SpotPoolStatus)


KIND = Kind(
    SpotPool,
    plural="spotpools",
    short=("spot",),
    scope=Scope.CLUSTER,
    columns=(
        Column("Mode", ".status.mode"),
        Column("Ready", ".status.nodes.ready", "integer"),
        Column("Noticed", ".status.nodes.noticed", "integer"),
        Column("Draining", ".status.nodes.draining", "integer"),
        Column("Price", ".status.price.perHour", "number"),
        Column("PerHour", ".status.cost.perHour", "number"),
        Column("Preemptions", ".status.preemptions.total", "integer"),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Spot", ".status.cost.spot", "number", wide=True),
        Column("OnDemand", ".status.cost.onDemand", "number", wide=True),
        Column("Message", '.status.conditions[?(@.type=="Ready")].message', wide=True),
    ),
    editors=Editors.CLUSTER_ADMINS,
    marks_nodes=True,
)
