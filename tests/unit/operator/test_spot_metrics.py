"""Tests of the metrics of SpotPools."""

from __future__ import annotations

from datetime import timedelta

from prometheus_client import CollectorRegistry
from tests.unit.controllers.spot_cluster import SpotCluster

from convoy_operator.spot_metrics import SpotMetrics


def test_a_pool_is_shown_as_its_status_says_until_it_is_gone() -> None:
    cluster = SpotCluster()
    cluster.claim(1)
    for name in "abc":
        cluster.add_node(name)
    cluster.step()
    cluster.notify("a", seconds=600)
    cluster.remove_node("b")
    cluster.wait(3600, tick=600)
    registry = CollectorRegistry()
    metrics = SpotMetrics(registry)
    metrics.show([cluster.pool], cluster.now + timedelta(seconds=5))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"convoy_spot_{name}", {"pool": "pool", **labels})

    assert value("nodes", state="ready") == 2
    assert value("preemptions", notice="without") == 1
    assert value("false_notices") == 1
    assert value("price_per_hour") == 0.25
    assert value("price_age_seconds") == 3605
    assert value("cost_per_hour") == 0.5
    assert value("cost", capacity="spot") == cluster.status.cost.spot > 0
    assert value("unused_cost") == cluster.status.cost.spot
    assert value("residual_cost") == 0
    reasons = "convoy_spot_pools_need_attention"
    assert registry.get_sample_value(reasons, {"reason": "SpotFalseNotice"}) == 1
    metrics.show([], cluster.now)
    assert value("nodes", state="ready") is None
    assert registry.get_sample_value(reasons, {"reason": "SpotFalseNotice"}) == 0


def test_a_notice_counts_once_for_each_source_while_it_holds() -> None:
    cluster = SpotCluster()
    cluster.add_node("a")
    cluster.notify("a", seconds=60)
    cluster.step()
    registry = CollectorRegistry()
    metrics = SpotMetrics(registry)
    labels = {"pool": "pool", "kind": "Preemption", "source": "Fake"}
    metrics.show([cluster.pool], cluster.now)
    assert registry.get_sample_value("convoy_spot_notices", labels) == 1
    cluster.wait(300)
    metrics.show([cluster.pool], cluster.now)
    assert registry.get_sample_value("convoy_spot_notices", labels) is None
