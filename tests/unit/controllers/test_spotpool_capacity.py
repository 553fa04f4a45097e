"""Tests of grants, and of the fall-back to on-demand nodes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controllers.spot_cluster import LABELS, ON_DEMAND_LABELS, SpotCluster, make_pool

from convoy_crds.spotpool_status import MAX_NODES, CapacityMode

SPOT, ON_DEMAND = CapacityMode.SPOT, CapacityMode.ON_DEMAND


def with_fallback(**facts: Any) -> SpotCluster:
    """Return a cluster with one job of two pods, whose pool falls back to on-demand nodes."""
    fallback = {"onDemandSelector": {"matchLabels": ON_DEMAND_LABELS}, **facts}
    cluster = SpotCluster(pool=make_pool(fallback=fallback))
    cluster.claim(2)
    return cluster


def test_pods_that_leave_anyway_make_room_for_the_others() -> None:
    cluster = SpotCluster(pool=make_pool(maxNodes=4))
    cluster.claim(4)
    for name in "abcd":
        cluster.add_node(name)
        cluster.add_pod(f"pod-{name}", name)
    cluster.step()
    cluster.notify("a", seconds=3)
    smaller = make_pool(maxNodes=2)
    cluster.pool = smaller.model_copy(update={"status": cluster.status})
    cluster.step()
    assert cluster.evicted == ["pod-a", "pod-d"]


def test_a_pool_of_no_nodes_is_paused() -> None:
    cluster = SpotCluster(pool=make_pool(maxNodes=2))
    cluster.claim(2)
    for name in "ab":
        cluster.add_node(name)
        cluster.add_pod(f"pod-{name}", name)
    cluster.step()
    paused = make_pool(maxNodes=0)
    cluster.pool = paused.model_copy(update={"status": cluster.status})
    cluster.step()
    assert sorted(cluster.evicted) == ["pod-a", "pod-b"]
    (grant,) = cluster.status.grants
    assert (grant.pods, grant.reason) == (0, "PoolFull")
    assert "grants 0 of 2 pods: its spec.maxNodes allows 0 in all" in grant.message


def test_older_jobs_come_first() -> None:
    cluster = SpotCluster(pool=make_pool(maxNodes=3))
    cluster.claim(2, job="old")
    cluster.claim(2, job="young")
    cluster.step()
    assert [(one.job, one.pods, one.reason) for one in cluster.status.grants] == [
        ("old", 2, ""),
        ("young", 1, "PoolFull"),
    ]
    assert "spec.maxNodes" in cluster.status.grants[1].message


def test_several_pods_fit_on_a_node_if_the_pool_says_so() -> None:
    cluster = SpotCluster(pool=make_pool(maxNodes=1, podsPerNode=4))
    cluster.claim(9)
    cluster.step()
    assert cluster.status.grants[0].pods == 4


def test_a_namespace_that_is_not_allowed_gets_nothing() -> None:
    cluster = SpotCluster(pool=make_pool(allowedNamespaces=["other"]))
    cluster.claim(1)
    cluster.step()
    (grant,) = cluster.status.grants
    assert (grant.pods, grant.reason) == (0, "PoolNotAllowed")
    assert "spec.allowedNamespaces" in grant.message


def test_a_pool_that_holds_the_process_group_gives_its_job_nothing() -> None:
    cluster = SpotCluster()
    cluster.claim(1, trainer_nodes=("a",))
    cluster.add_node("a")
    cluster.step()
    assert cluster.status.grants[0].reason == "PoolHoldsGroup"
    assert "(a)" in cluster.status.grants[0].message


@pytest.mark.parametrize(("nodes", "reason"), [(0, "PoolEmpty"), (1, "PoolReady")])
def test_a_pool_that_selects_nothing_says_so(nodes: int, reason: str) -> None:
    cluster = SpotCluster()
    for number in range(nodes):
        cluster.add_node(str(number))
    cluster.step()
    assert cluster.condition("Ready") == (str(bool(nodes)), reason)


def test_without_a_fallback_pods_wait_for_spot_nodes() -> None:
    cluster = SpotCluster()
    cluster.claim(1)
    cluster.wait(3600, tick=60)
    assert cluster.status.mode is SPOT
    assert cluster.condition("SpotAvailable") == ("False", "AwaitingSpotNode")


def test_the_pool_falls_back_after_a_wait_and_returns_after_its_minimum_stay() -> None:
    cluster = with_fallback()
    cluster.wait(110)
    assert cluster.status.mode is SPOT
    cluster.wait(20)
    assert cluster.status.mode is ON_DEMAND
    assert cluster.status.grants[0].mode is ON_DEMAND
    assert cluster.condition("SpotAvailable")[1] == "NoSpotNode"
    since = cluster.status.mode_since
    cluster.add_node("expensive", spot=False)
    cluster.add_pod("pod-1", "expensive")
    cluster.wait(60)
    cluster.add_node("a")
    cluster.wait(480)
    assert (cluster.status.mode, cluster.status.mode_since) == (ON_DEMAND, since)
    assert not cluster.evicted
    cluster.add_pod("pod-2", "a")
    cluster.add_node("b")
    cluster.wait(90)
    assert cluster.status.mode is SPOT
    assert cluster.evicted == ["pod-1"]


def test_pods_return_only_as_far_as_spot_nodes_have_room() -> None:
    cluster = with_fallback(after="1s", minimumStay="1m")
    cluster.wait(20)
    for number in range(2):
        cluster.add_node(f"expensive-{number}", spot=False)
        cluster.add_pod(f"pod-{number}", f"expensive-{number}")
    cluster.add_node("a")
    cluster.wait(100)
    assert cluster.status.mode is SPOT
    assert cluster.evicted == ["pod-1"]


def test_a_pool_that_never_wants_pods_never_falls_back() -> None:
    cluster = with_fallback()
    cluster.claims.clear()
    cluster.wait(3600, tick=60)
    assert cluster.status.mode is SPOT
    assert cluster.status.mode_since is None


def test_claims_that_get_nothing_do_not_cause_a_fall_back() -> None:
    cluster = with_fallback()
    cluster.claims.clear()
    cluster.claim(1, trainer_nodes=("a",))
    cluster.wait(600, tick=60)
    assert cluster.status.mode is SPOT
    assert cluster.condition("SpotAvailable")[0] == "True"


def test_too_many_preemptions_open_the_breaker_for_an_hour() -> None:
    cluster = with_fallback(maxInterruptionsPerHour=2, minimumStay="1m")
    cluster.add_node("stays")
    for number in range(3):
        cluster.add_node(f"lost-{number}")
    cluster.step()
    for number in range(3):
        cluster.remove_node(f"lost-{number}")
        cluster.wait(10)
    assert cluster.status.mode is ON_DEMAND
    assert cluster.condition("SpotAvailable") == ("False", "InterruptedTooOften")
    cluster.wait(3500, tick=60)
    assert cluster.status.mode is ON_DEMAND
    cluster.wait(200)
    assert cluster.status.mode is SPOT


@pytest.mark.parametrize(("probe", "evicted"), [(False, []), (True, ["pod-1"])])
def test_a_probe_moves_one_pod_so_that_an_autoscaler_makes_a_node(probe: bool, evicted: list[str]) -> None:
    cluster = with_fallback(after="1s", minimumStay="1m", probe=probe)
    cluster.wait(20)
    for number in range(2):
        cluster.add_node(f"expensive-{number}", spot=False)
        cluster.add_pod(f"pod-{number}", f"expensive-{number}")
    cluster.wait(70)
    assert cluster.evicted == evicted
    assert cluster.status.mode is ON_DEMAND


@pytest.mark.parametrize(
    ("below", "wanted", "per_node", "ready", "mode"),
    [
        (1, 4, 1, 1, SPOT),
        (1, 4, 1, 0, ON_DEMAND),
        (4, 4, 1, 3, ON_DEMAND),
        (4, 4, 1, 4, SPOT),
        (8, 4, 1, 4, SPOT),  # the pods need no more nodes
        (8, 4, 1, 3, ON_DEMAND),
        (3, 8, 1, 3, SPOT),
        (3, 8, 1, 2, ON_DEMAND),
        (8, 8, 4, 2, SPOT),  # two nodes have room for eight pods
        (8, 9, 4, 2, ON_DEMAND),
        (8, 20, 1, 7, ON_DEMAND),
        (8, 20, 1, 8, SPOT),  # maxNodes
    ],
)
def test_too_few_spot_nodes_make_the_pool_fall_back(
    below: int, wanted: int, per_node: int, ready: int, mode: CapacityMode
) -> None:
    cluster = with_fallback(spotBelow=below)
    cluster.pool.spec.pods_per_node = per_node
    cluster.claims.clear()
    cluster.claim(wanted)
    for number in range(ready):
        cluster.add_node(f"spot-{number}")
        cluster.add_pod(f"pod-{number}", f"spot-{number}")
    cluster.wait(110)
    assert cluster.status.mode is SPOT
    cluster.wait(20)
    assert cluster.status.mode is mode
    assert not cluster.evicted, "pods on spot nodes stay"
    if mode is ON_DEMAND:
        assert ("TooFewSpotNodes" if ready else "NoSpotNode") in cluster.events


def test_on_demand_nodes_top_up_until_there_is_room_on_spot_nodes() -> None:
    cluster = with_fallback(spotBelow=8, after="1m", minimumStay="5m")
    cluster.claims.clear()
    cluster.claim(4)
    for number in range(2):
        cluster.add_node(f"spot-{number}")
        cluster.add_pod(f"pod-{number}", f"spot-{number}")
    cluster.wait(70)
    assert cluster.status.mode is ON_DEMAND
    for number in (2, 3):
        cluster.add_node(f"expensive-{number}", spot=False)
        cluster.add_pod(f"pod-{number}", f"expensive-{number}")
    cluster.wait(3600, tick=60)
    assert cluster.status.mode is ON_DEMAND, "no spot node has room"
    assert cluster.condition("SpotAvailable") == ("False", "OnDemandStay")
    cluster.add_node("spot-2")
    cluster.step()
    assert (cluster.status.mode, cluster.evicted) == (SPOT, ["pod-3"])
    cluster.add_pod("pod-3", "spot-2")
    cluster.wait(50)
    assert cluster.status.mode is SPOT
    cluster.wait(20)
    assert cluster.status.mode is ON_DEMAND, "three of four nodes are still too few"
    assert cluster.evicted == ["pod-3"]
    cluster.add_node("spot-3")
    cluster.wait(310)
    assert (cluster.status.mode, cluster.evicted) == (SPOT, ["pod-3", "pod-2"])


def test_a_shortage_that_ends_in_time_causes_no_fall_back() -> None:
    cluster = with_fallback(spotBelow=2)
    cluster.add_node("a")
    cluster.wait(110)
    cluster.add_node("b")
    cluster.wait(20)
    cluster.change("b", ready=False)
    cluster.wait(110)
    assert cluster.status.mode is SPOT
    cluster.wait(20)
    assert cluster.status.mode is ON_DEMAND


def test_a_probe_asks_for_each_missing_spot_node() -> None:
    cluster = with_fallback(spotBelow=2, after="1s", minimumStay="1m", probe=True)
    cluster.add_node("a")
    cluster.add_pod("pod-0", "a")
    cluster.wait(20)
    cluster.add_node("expensive", spot=False)
    cluster.add_pod("pod-1", "expensive")
    cluster.wait(70)
    assert cluster.evicted == ["pod-1"]


@pytest.mark.parametrize(
    ("spend", "pods"),
    [
        (1.5, 3),  # two spot nodes cost 0.5, and one on-demand node 1.0
        (2.4, 3),
        (2.5, 4),
        (0.6, 2),
        (0.3, 1),
    ],
)
def test_the_hourly_budget_counts_spot_nodes_at_their_price_after_a_fall_back(
    spend: float, pods: int
) -> None:
    fallback = {"onDemandSelector": {"matchLabels": ON_DEMAND_LABELS}, "spotBelow": 4, "after": "1s"}
    cluster = SpotCluster(pool=make_pool(fallback=fallback))
    cluster.claim(4)
    for number in range(2):
        cluster.add_node(f"spot-{number}")
        cluster.add_pod(f"pod-{number}", f"spot-{number}")
    cluster.wait(20)
    assert cluster.status.mode is ON_DEMAND
    cluster.pool.spec.budget.max_spend_per_hour = spend
    cluster.step()
    assert cluster.status.grants[0].pods == pods


@pytest.mark.parametrize(
    ("spot", "spend", "granted", "evicted"),
    [
        (4, 2.0, 5, []),  # an on-demand node costs 1.0, and four spot nodes cost 1.0
        (7, 2.0, 8, ["expensive"]),  # without the on-demand node the pool can pay for eight spot nodes
        (4, 1.5, 6, ["expensive"]),
        (4, 0.5, 2, ["expensive", "pod-3", "pod-2"]),
    ],
)
def test_the_hourly_budget_pays_for_on_demand_nodes_after_the_return(
    spot: int, spend: float, granted: int, evicted: list[str]
) -> None:
    cluster = with_fallback(after="1s", minimumStay="1m")
    cluster.claims.clear()
    cluster.claim(8)
    cluster.wait(20)
    assert cluster.status.mode is ON_DEMAND
    cluster.add_node("expensive-node", spot=False)
    cluster.add_pod("expensive", "expensive-node")
    for number in range(spot):
        cluster.add_node(f"spot-{number}")
        cluster.add_pod(f"pod-{number}", f"spot-{number}")
    cluster.wait(100)
    assert cluster.status.mode is SPOT
    assert not cluster.evicted, "spot nodes have no room"
    cluster.pool.spec.budget.max_spend_per_hour = spend
    cluster.step()
    assert cluster.status.grants[0].pods == granted
    assert set(cluster.evicted) == set(evicted)
    cluster.wait(60)
    assert set(cluster.evicted) == set(evicted), "nothing more leaves"
    assert cluster.status.cost.per_hour <= max(spend, spot * 0.25)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(("pod", "node", "loss", "wait"))), max_size=14),
    st.sampled_from((0.5, 1.0, 2.0, 3.3)),
)
def test_pods_within_the_grant_never_cost_more_than_the_hourly_budget(
    actions: list[tuple[bool, str]], spend: float
) -> None:
    cluster = with_fallback(after="1s", minimumStay="1m")
    cluster.claims.clear()
    cluster.claim(8)
    cluster.pool.spec.budget.max_spend_per_hour = spend
    cluster.wait(20)
    for number, (spot, action) in enumerate(actions):
        free = [name for name in cluster.nodes if all(pod.node != name for pod in cluster.pods.values())]
        match action:
            case "node":
                cluster.add_node(f"node-{number}", spot=spot)
            case "loss" if cluster.nodes:
                cluster.remove_node(next(iter(cluster.nodes)))
            case "wait":
                cluster.wait(70)
            case "pod" if len(cluster.pods) < cluster.status.grants[0].pods:
                wanted = LABELS if cluster.status.mode is SPOT else ON_DEMAND_LABELS
                if fitting := [name for name in free if cluster.nodes[name].labels == wanted]:
                    cluster.add_pod(f"pod-{number}", fitting[0])
        cluster.step()
        used = {pod.node for pod in cluster.pods.values()}
        cost = sum(0.25 if cluster.nodes[name].labels == LABELS else 1.0 for name in used)
        assert cost <= spend + 1e-9


def test_a_budget_for_few_spot_nodes_causes_no_fall_back() -> None:
    cluster = with_fallback(spotBelow=8)
    cluster.claims.clear()
    cluster.claim(8)
    cluster.pool.spec.budget.max_spend_per_hour = 0.5
    for number in range(2):
        cluster.add_node(f"spot-{number}")
    cluster.wait(600)
    assert cluster.status.mode is SPOT


@pytest.mark.parametrize(("losses", "mode"), [(MAX_NODES, SPOT), (MAX_NODES + 1, ON_DEMAND)])
def test_the_largest_limit_of_interruptions_can_be_exceeded(losses: int, mode: CapacityMode) -> None:
    cluster = with_fallback(maxInterruptionsPerHour=MAX_NODES)
    for part in (losses // 2, losses - losses // 2):
        for number in range(part):
            cluster.add_node(f"spot-{number}")
        cluster.step()
        for number in range(part):
            cluster.remove_node(f"spot-{number}")
        cluster.step()
    assert cluster.status.preemptions.total == losses
    assert cluster.status.mode is mode


def test_on_demand_nodes_cost_while_they_run_pods_of_the_pool() -> None:
    cluster = with_fallback(after="1s")
    cluster.add_node("expensive", spot=False)
    cluster.wait(300)
    assert cluster.status.cost.on_demand == 0
    cluster.add_pod("pod", "expensive")
    cluster.step()
    cluster.wait(360)
    assert cluster.status.cost.on_demand == pytest.approx(0.1)
    assert cluster.status.nodes.on_demand == 1
