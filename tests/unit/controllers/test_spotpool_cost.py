"""Tests of the cost of a pool's nodes, their prices, and the budgets."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.controllers.spot_cluster import ON_DEMAND_LABELS, START, SpotCluster, make_pool

from convoy_controllers.spotpool.observed import TraceLookup
from convoy_crds.spot_prices import parse_trace
from convoy_crds.spotpool_status import SpotCost

HOUR = 3600.0


def price(**facts: object) -> dict[str, object]:
    """Return spec.price with an on-demand price of 1."""
    return {"onDemandPerHour": 1.0, "spot": {"perHour": 0.25}, "asOf": "2026-01-01T00:00:00Z", **facts}


def spend(cost: SpotCost) -> dict[str, float]:
    """Return the spend of each namespace."""
    return {one.namespace: one.spend for one in cost.by_namespace}


def balanced(cost: SpotCost) -> bool:
    """Return True if the parts of the cost add up to the whole."""
    parts = sum(spend(cost).values()) + cost.unused + cost.residual
    return parts == pytest.approx(cost.spot + cost.on_demand)


def test_a_node_costs_from_its_creation_to_its_deletion() -> None:
    cluster = SpotCluster()
    cluster.step()
    cluster.add_node("a", ready=False)
    cluster.wait(HOUR, tick=60)
    cluster.remove_node("a")
    cluster.step()
    cluster.wait(HOUR, tick=600)
    cost = cluster.status.cost
    assert cost.spot == pytest.approx(0.25)
    assert cost.unused == pytest.approx(0.25)
    assert cost.residual == 0


def test_namespaces_on_one_node_share_its_cost() -> None:
    cluster = SpotCluster()
    cluster.add_node("a")
    cluster.claim(4, "x")
    cluster.claim(4, "y")
    cluster.step()
    cluster.add_pod("one", "a", "x")
    cluster.add_pod("two", "a", "x")
    cluster.add_pod("three", "a", "y")
    cluster.wait(HOUR, tick=60)
    cost = cluster.status.cost
    assert spend(cost) == pytest.approx({"x": 0.125, "y": 0.125})
    assert balanced(cost)
    assert cost.per_hour == 0.25


def test_a_node_older_than_the_pool_costs_from_the_creation_of_the_pool() -> None:
    cluster = SpotCluster()
    cluster.add_node("a")
    cluster.change("a", created=START - timedelta(days=1))
    cluster.wait(100)
    assert cluster.status.cost.spot == pytest.approx(0.25 * 100 / HOUR)


def test_a_lost_node_costs_nothing_more() -> None:
    cluster = SpotCluster()
    cluster.add_node("a")
    cluster.step()
    cluster.change("a", ready=False)
    cluster.wait(130)
    before = cluster.status.cost.spot
    cluster.wait(HOUR, tick=60)
    assert cluster.status.cost.spot == before
    assert cluster.status.cost.per_hour == 0


def test_a_silent_node_that_comes_back_was_there_all_the_time() -> None:
    fallback = {"onDemandSelector": {"matchLabels": ON_DEMAND_LABELS}, "maxInterruptionsPerHour": 1}
    cluster = SpotCluster(pool=make_pool(fallback=fallback))
    for name in "abc":
        cluster.add_node(name)
    cluster.step()
    for name in "abc":
        cluster.change(name, ready=False)
    cluster.wait(HOUR / 2)
    assert (cluster.status.preemptions.total, cluster.status.nodes.gone) == (3, 3)
    assert cluster.condition("SpotAvailable") == ("False", "InterruptedTooOften")
    for name in "ab":
        cluster.change(name, ready=True)
    cluster.change("c", ready=True, boot_id="next")
    cluster.wait(HOUR / 2)
    assert cluster.status.preemptions.returned == 2
    assert cluster.status.nodes.gone == 1
    assert cluster.condition("SpotAvailable") == ("True", "SpotInUse")
    cost = cluster.status.cost
    silent = 1 / 2 - 120 / HOUR
    assert cost.residual == pytest.approx(2 * 0.25 * silent, rel=0.02)
    assert cost.spot == pytest.approx(0.25 * (3 - silent), rel=0.02)
    assert balanced(cost)


def test_time_without_an_operator_is_the_residual() -> None:
    cluster = SpotCluster()
    cluster.add_node("a")
    cluster.claim(1)
    cluster.step()
    cluster.add_pod("pod", "a")
    cluster.wait(60)
    cluster.now += timedelta(hours=1)
    cluster.restart_operator()
    cluster.step()
    cost = cluster.status.cost
    assert cost.residual == pytest.approx(0.25)
    assert spend(cost)["team"] == pytest.approx(0.25 * 60 / HOUR)
    assert balanced(cost)


def test_a_short_restart_of_the_operator_leaves_no_residual() -> None:
    cluster = SpotCluster()
    cluster.add_node("a")
    cluster.step()
    cluster.now += timedelta(seconds=50)
    cluster.restart_operator()
    cluster.wait(10)
    assert cluster.status.cost.residual == 0
    assert cluster.status.cost.spot == pytest.approx(0.25 * 60 / HOUR)


def test_an_old_price_counts_as_the_on_demand_price_until_it_is_known() -> None:
    cluster = SpotCluster(pool=make_pool(price=price(maxAge="1h")))
    cluster.add_node("a")
    cluster.claim(1)
    cluster.step()
    cluster.add_pod("pod", "a")
    cluster.wait(2 * HOUR, tick=60)
    cost = cluster.status.cost
    assert cost.spot == pytest.approx(0.25 + 1.0)
    assert cost.provisional == pytest.approx(1.0, rel=0.01)
    assert cluster.condition("PriceKnown") == ("False", "PriceStale")
    assert cluster.status.price.per_hour == 1.0
    later = make_pool(price=price(asOf="2026-01-01T02:00:00Z", maxAge="1h"))
    cluster.pool = later.model_copy(update={"status": cluster.status})
    cluster.step()
    cost = cluster.status.cost
    assert cost.spot == pytest.approx(0.5, rel=0.01)
    assert cost.provisional == 0
    assert balanced(cost)
    assert cluster.condition("PriceKnown") == ("True", "PriceKnown")


def test_prices_that_always_come_late_correct_all_but_the_newest_cost() -> None:
    spec = price(spot={"trace": {"configMap": "prices"}}, maxAge="1h")
    del spec["asOf"]
    cluster = SpotCluster(pool=make_pool(price=spec))
    cluster.add_node("a")
    cluster.claim(1)
    cluster.step()
    for hour in range(1, 37):
        cluster.wait(HOUR, tick=60)
        if hour == 20:
            cluster.add_pod("pod", "a")
        read = (cluster.now - timedelta(hours=5)).timestamp()
        prices = parse_trace(f"{START.timestamp():.0f},0.25")
        cluster.trace = TraceLookup(prices, as_of=read)
        cluster.step()
        assert len(cluster.pool.status.provisional) <= 4
    cost = cluster.status.cost
    # The price is known until 4 hours ago. The span in which that time lies is still open.
    assert cost.provisional == pytest.approx(5.0, abs=1.01)
    assert cost.spot - cost.provisional == pytest.approx(0.25 * (36 - cost.provisional), rel=0.01)
    assert spend(cost)["team"] - cost.provisional == pytest.approx(0.25 * (16 - cost.provisional), rel=0.01)
    assert balanced(cost)


def test_an_edit_of_the_on_demand_price_corrects_no_earlier_cost() -> None:
    cluster = SpotCluster(pool=make_pool(price=price(maxAge="1s"), budget={"maxSpend": 10.0}))
    for number in range(8):
        cluster.add_node(str(number))
    cluster.claim(8)
    cluster.step()
    for number in range(8):
        cluster.add_pod(f"pod-{number}", str(number))
    cluster.wait(HOUR, tick=60)
    assert cluster.status.cost.spot == pytest.approx(8.0, rel=0.01)
    edited = price(onDemandPerHour=2.0, asOf="2026-01-01T01:00:00Z")
    cluster.pool = make_pool(price=edited).model_copy(update={"status": cluster.status})
    cluster.step()
    cost = cluster.status.cost
    assert cost.spot == pytest.approx(8 * 0.25)
    assert spend(cost) == pytest.approx({"team": 8 * 0.25})


def test_a_gap_in_the_prices_leaves_no_other_time_uncorrected() -> None:
    spec = price(spot={"trace": {"configMap": "prices"}}, maxAge="9000h")
    cluster = SpotCluster(pool=make_pool(price=spec))
    cluster.add_node("a")
    start = START.timestamp()
    rows = f"{start:.0f},\n{start + 60:.0f},0.25\n"
    cluster.trace = TraceLookup(parse_trace(rows), as_of=start)
    cluster.step()
    cluster.wait(HOUR)
    cluster.trace = TraceLookup(error="the ConfigMap does not exist")
    cluster.wait(HOUR)
    assert cluster.status.cost.spot == pytest.approx(1.25, rel=0.02)
    cluster.trace = TraceLookup(parse_trace(rows), as_of=start)
    cluster.step()
    assert cluster.status.cost.spot == pytest.approx(0.5, rel=0.03)
    assert cluster.status.cost.provisional == pytest.approx(60 / HOUR)


def test_a_higher_price_does_not_change_the_past() -> None:
    cluster = SpotCluster()
    cluster.add_node("a")
    cluster.wait(HOUR, tick=60)
    dear = make_pool(price=price(spot={"perHour": 0.5}, maxAge="9000h"))
    cluster.pool = dear.model_copy(update={"status": cluster.status})
    cluster.wait(HOUR, tick=60)
    assert cluster.status.cost.spot == pytest.approx(0.75)


def test_steps_change_the_price_at_their_time() -> None:
    steps = [
        {"from": "2026-01-01T00:30:00Z", "perHour": 0.4},
        {"from": "2026-01-01T00:00:00Z", "perHour": 0.2},
    ]
    cluster = SpotCluster(pool=make_pool(price=price(spot={"steps": steps}, maxAge="24h")))
    cluster.add_node("a")
    cluster.step()
    cluster.wait(HOUR, tick=59)
    assert cluster.status.cost.spot == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("lookup", "reason", "words"),
    [
        (None, "PriceTraceMissing", "not read it yet"),
        (TraceLookup(error="it does not exist"), "PriceTraceMissing", "does not exist"),
        (TraceLookup(parse_trace("5,1\n4,1\n")), "PriceTraceInvalid", "line 2"),
        (TraceLookup(parse_trace("1767225600,\n")), "PriceGap", "spec.price.spot.trace"),
        (TraceLookup(parse_trace("2767225600,0.2\n")), "PriceGap", "spec.price.spot.trace"),
        (TraceLookup(parse_trace("1767225600,0.2\n"), as_of=0.0), "PriceStale", "spec.price.asOf"),
    ],
)
def test_a_wrong_trace_counts_as_the_on_demand_price(
    lookup: TraceLookup | None, reason: str, words: str
) -> None:
    traced = price(spot={"trace": {"configMap": "prices"}})
    cluster = SpotCluster(pool=make_pool(price=traced), trace=lookup)
    cluster.add_node("a")
    cluster.wait(60)
    assert cluster.condition("PriceKnown") == ("False", reason)
    (condition,) = [one for one in cluster.status.conditions if one.type == "PriceKnown"]
    assert words in condition.message
    assert cluster.status.cost.spot == pytest.approx(60 / HOUR)


def test_a_price_without_a_time_is_not_trusted() -> None:
    undated = {key: value for key, value in price().items() if key != "asOf"}
    cluster = SpotCluster(pool=make_pool(price=undated))
    cluster.step()
    assert cluster.condition("PriceKnown") == ("False", "PriceUndated")


@pytest.mark.parametrize(
    ("ahead", "annotated", "known"),
    [(240, False, True), (400, False, False), (240, True, True), (73 * 365 * 86400, True, False)],
)
def test_a_time_of_reading_in_the_future_is_not_trusted(ahead: float, annotated: bool, known: bool) -> None:
    read = START + timedelta(seconds=ahead)
    lookup = None
    if annotated:
        body = price(spot={"trace": {"configMap": "prices"}})
        lookup = TraceLookup(parse_trace(f"{START.timestamp():.0f},0.25"), as_of=read.timestamp())
    else:
        body = price(asOf=read.isoformat())
    cluster = SpotCluster(pool=make_pool(price=body), trace=lookup)
    cluster.step()
    (condition,) = [one for one in cluster.status.conditions if one.type == "PriceKnown"]
    assert condition.reason == ("PriceKnown" if known else "PriceUndated")
    assert cluster.status.price.per_hour == (0.25 if known else 1.0)
    if not known:
        path = "convoy.dev/price-as-of of ConfigMap 'prices'" if annotated else "spec.price.asOf"
        assert path in condition.message
        assert f"{read:%Y-%m-%d}" in condition.message
        assert cluster.status.price.as_of is None


def test_a_spent_budget_drains_the_pool() -> None:
    cluster = SpotCluster(pool=make_pool(budget={"maxSpend": 0.25}))
    cluster.claim(1)
    cluster.add_node("a")
    cluster.step()
    cluster.add_pod("pod", "a")
    cluster.wait(HOUR - 20, tick=60)
    assert not cluster.evicted
    cluster.wait(20)
    assert cluster.evicted == ["pod"]
    assert cluster.status.grants[0].pods == 0
    assert cluster.condition("Ready") == ("False", "PoolBudgetSpent")
    assert cluster.condition("WithinBudget") == ("False", "PoolBudgetSpent")
    assert "spec.budget.maxSpend" in cluster.status.grants[0].message


def test_a_namespace_with_a_spent_budget_stops_alone() -> None:
    cluster = SpotCluster(pool=make_pool(budget={"perNamespace": {"maxSpend": 0.1}}))
    for namespace in ("x", "y"):
        cluster.claim(1, namespace)
        cluster.add_node(namespace)
        cluster.step()
    cluster.add_pod("of-x", "x", "x")
    cluster.wait(HOUR, tick=60)
    assert cluster.evicted == ["of-x"]
    assert [(one.namespace, one.pods) for one in cluster.status.grants] == [("x", 0), ("y", 1)]
    assert cluster.condition("Ready")[0] == "True"
    assert cluster.condition("WithinBudget") == ("False", "NamespaceBudgetSpent")


def test_an_hourly_budget_limits_the_number_of_nodes() -> None:
    cluster = SpotCluster(pool=make_pool(budget={"maxSpendPerHour": 0.6}))
    cluster.claim(5)
    cluster.add_node("a")
    cluster.step()
    assert cluster.status.grants[0].pods == 2
    assert "spec.budget.maxSpendPerHour" in cluster.status.grants[0].message
    assert cluster.condition("WithinBudget") == ("False", "HourlyBudgetReached")


def test_a_higher_price_shrinks_what_the_hourly_budget_allows() -> None:
    cluster = SpotCluster(pool=make_pool(budget={"maxSpendPerHour": 0.6}))
    cluster.claim(2)
    for name in ("a", "b"):
        cluster.add_node(name)
        cluster.add_pod(f"pod-{name}", name)
    cluster.step()
    assert not cluster.evicted
    dear = make_pool(budget={"maxSpendPerHour": 0.6}, price=price(spot={"perHour": 0.5}))
    cluster.pool = dear.model_copy(update={"status": cluster.status})
    cluster.step()
    assert cluster.evicted == ["pod-b"]


def test_a_growing_cost_alone_is_stored_every_half_minute() -> None:
    cluster = SpotCluster()
    cluster.add_node("a")
    cluster.step()
    writes = 0
    for _ in range(30):
        cluster.now += timedelta(seconds=10)
        writes += cluster.step().status is not None
    assert writes == 10
    assert cluster.status.cost.spot == pytest.approx(0.25 * 300 / HOUR)


def test_a_new_leader_goes_on_from_the_stored_cost() -> None:
    cluster = SpotCluster()
    cluster.add_node("a")
    cluster.step()
    for _ in range(10):
        cluster.wait(25)
        cluster.restart_operator()
    cluster.step()
    assert cluster.status.cost.spot == pytest.approx(0.25 * 250 / HOUR)
    assert cluster.status.cost.residual == 0
