"""The metrics of SpotPools."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable
from datetime import datetime

from prometheus_client import CollectorRegistry, Gauge

from convoy_crds.condition_doc import EVENTS
from convoy_crds.spotpool import SpotPool
from convoy_crds.spotpool_conditions import SPOTPOOL_CONDITIONS
from convoy_crds.spotpool_status import CapacityMode, NoticeKind, NoticeSource, SpotPoolStatus

NODE_STATES = ("booting", "ready", "noticed", "draining", "lost")
REASONS = tuple(
    dict.fromkeys(
        reason.name
        for one in SPOTPOOL_CONDITIONS
        for reason in one.reasons
        if reason.warning and one.name != EVENTS
    )
)
"""Warning reasons of the conditions of SpotPools."""


class SpotMetrics:
    """The metrics of all SpotPools. Series with the label `pool` disappear with the pool."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"convoy_spot_{name}", text, ["pool", *labels], registry=registry)

        self.nodes = gauge("nodes", "Spot nodes by state.", "state")
        self.on_demand_nodes = gauge("on_demand_nodes", "On-demand nodes that run pods of the pool.")
        self.fallback = gauge("fallback", "1 while new pods are placed on on-demand nodes.")
        self.notices = gauge("notices", "Notices about present nodes that hold.", "kind", "source")
        self.preemptions = gauge(
            "preemptions", "Nodes that the provider has taken back, with or without a notice.", "notice"
        )
        self.false_notices = gauge("false_notices", "Notices after whose deadline the node was still ready.")
        self.notice_lead = gauge(
            "notice_lead_seconds",
            "Median time from a notice to the loss of the node, over the latest preemptions.",
        )
        self.cost = gauge("cost", "Cost of the nodes since the pool exists, by capacity.", "capacity")
        self.unused_cost = gauge("unused_cost", "Part of the cost in which no pod used the node.")
        self.residual_cost = gauge("residual_cost", "Part of the cost that Convoy did not observe.")
        self.cost_per_hour = gauge("cost_per_hour", "Cost of the present nodes per hour.")
        self.price = gauge("price_per_hour", "Price of a spot node per hour that counts at present.")
        self.price_age = gauge("price_age_seconds", "Time since the spot price was read.")
        self.needs_attention = Gauge(
            "convoy_spot_pools_need_attention",
            "SpotPools with a condition that a person should look at, by reason.",
            ["reason"],
            registry=registry,
        )
        self._by_pool = (
            self.nodes,
            self.on_demand_nodes,
            self.fallback,
            self.notices,
            self.preemptions,
            self.false_notices,
            self.notice_lead,
            self.cost,
            self.unused_cost,
            self.residual_cost,
            self.cost_per_hour,
            self.price,
            self.price_age,
        )
        self.show((), datetime.min)

    def show(self, pools: Iterable[SpotPool], now: datetime) -> None:
        """Set the gauges from the statuses of all SpotPools."""
        for metric in self._by_pool:
            metric.clear()
        reasons: Counts[str] = Counts()
        for pool in pools:
            self._show(pool.metadata.name, pool.status, now)
            reasons.update({one.reason for one in pool.status.conditions if one.status == "False"})
        for reason in REASONS:
            self.needs_attention.labels(reason).set(reasons[reason])

    def _show(self, name: str, status: SpotPoolStatus, now: datetime) -> None:
        for state in NODE_STATES:
            self.nodes.labels(name, state).set(getattr(status.nodes, state))
        self.on_demand_nodes.labels(name).set(status.nodes.on_demand)
        self.fallback.labels(name).set(status.mode is CapacityMode.ON_DEMAND)
        self._show_notices(name, status)
        cost = status.cost
        self.cost.labels(name, "spot").set(cost.spot)
        self.cost.labels(name, "on_demand").set(cost.on_demand)
        self.unused_cost.labels(name).set(cost.unused)
        self.residual_cost.labels(name).set(cost.residual)
        self.cost_per_hour.labels(name).set(cost.per_hour)
        self.price.labels(name).set(status.price.per_hour)
        if status.price.as_of is not None:
            self.price_age.labels(name).set(max(0.0, (now - status.price.as_of).total_seconds()))

    def _show_notices(self, name: str, status: SpotPoolStatus) -> None:
        holding: Counts[tuple[NoticeKind, NoticeSource]] = Counts()
        for one in status.notices:
            if one.state.holds:
                holding.update((one.kind, source) for source in one.sources)
        for (kind, source), count in holding.items():
            self.notices.labels(name, kind.value, source.value).set(count)
        counts = status.preemptions
        self.preemptions.labels(name, "with").set(counts.with_notice)
        self.preemptions.labels(name, "without").set(counts.without_notice)
        self.false_notices.labels(name).set(counts.false_alarms)
        if status.notice_seconds is not None:
            self.notice_lead.labels(name).set(status.notice_seconds.p50)
