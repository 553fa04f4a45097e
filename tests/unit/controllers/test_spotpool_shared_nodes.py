"""Two pools whose pods share nodes: together the pools pay each node once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.controllers.spot_cluster import ON_DEMAND_LABELS, START, make_pool

from convoy_controllers.cached import CachedObject, Node, Pod
from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.keys import Key
from convoy_controllers.spotpool.observe import observe
from convoy_controllers.spotpool.plan import plan
from convoy_controllers.testing.builders import make_job
from convoy_controllers.testing.hub import FakeHub
from convoy_controllers.views import PodView
from convoy_crds import spotpool, trainingjob
from convoy_crds.spotpool_status import SpotPoolStatus
from convoy_crds.terms import LABEL_ROLE, LABEL_SPOT_POOL
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.reader import ClusterReader

POOLS = ("first", "second")
NODES = ("x", "y")
TICK = 30


class Pools:
    """The caches of an operator with two pools that fall back to the same nodes. Both plan at each tick."""

    def __init__(self, fallback_labels: dict[str, str] = ON_DEMAND_LABELS) -> None:
        self.cache, self.now = ClusterCache(CONTROLLERS), START
        self.reader = ClusterReader(self.cache, FakeHub(), now=lambda: self.now)
        self.version = 1
        self.status: dict[str, SpotPoolStatus] = {name: SpotPoolStatus() for name in POOLS}
        self.accounts: dict[str, Any] = {}
        self.pods: dict[tuple[str, str], Pod] = {}
        self.fallback = {"onDemandSelector": {"matchLabels": fallback_labels}}
        job = {**make_job().to_dict(), "status": {"phase": "Running"}}
        self.cache.objects(trainingjob.KIND).upsert(CachedObject("default", "job", "uid-job", 1, job))
        for name in POOLS:
            self._store(name)

    def _store(self, name: str) -> None:
        pool = make_pool(selector={"matchLabels": {"pool": name}}, fallback=self.fallback)
        raw = {**pool.to_dict(), "status": self.status[name].to_dict()}
        raw["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        self.version += 1
        self.cache.objects(spotpool.KIND).upsert(CachedObject("", name, f"uid-{name}", self.version, raw))

    def node(self, name: str, labels: dict[str, str]) -> None:
        """Add a node."""
        self.cache.nodes.upsert(Node(name, f"uid-{name}", 1, True, True, labels=labels, created=START))

    def pod(self, pool: str, node: str, *, there: bool = True) -> None:
        """Add a pod of a pool to a node, or remove it."""
        key = pool, node
        if not there:
            if key in self.pods:
                self.cache.pods.remove(self.pods.pop(key))
            return
        if key in self.pods:
            return
        self.version += 1
        labels = {LABEL_ROLE: "rollout", LABEL_SPOT_POOL: pool}
        name, uid = f"{pool}-{node}-{self.version}", f"uid-{self.version}"
        view = PodView(name, uid, "Running", node, labels=labels, owner_uid="uid-job")
        self.pods[key] = Pod("default", self.version, "job", view)
        self.cache.pods.upsert(self.pods[key])

    def tick(self) -> None:
        """Let both pools observe the same moment and make their plans, which are then stored."""
        found = {name: observe(self.reader, Key("SpotPool", "", name)) for name in POOLS}
        for name, observed in found.items():
            assert observed is not None
            made = plan(observed, self.now)
            if made.status is not None:
                self.status[name] = SpotPoolStatus.model_validate(made.status)
            self.reader.keep_memory(f"uid-{name}", made.memory)
            self._store(name)
            self.accounts[name] = made.memory

    def wait(self, ticks: int) -> None:
        """Let time pass."""
        for _ in range(ticks):
            self.now += timedelta(seconds=TICK)
            self.tick()

    def cost(self, capacity: str) -> float:
        """Return the cost of all pools by capacity: spot or on_demand."""
        return sum(float(getattr(one.cost, capacity)) for one in self.accounts.values())


ACTIONS = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from(POOLS), st.sampled_from(NODES), st.booleans()),
    st.tuples(st.just("wait"), st.integers(1, 4)),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(ACTIONS, max_size=8))
@example([("pod", "first", "x", True), ("pod", "second", "x", True), ("wait", 4)])
def test_together_the_pools_pay_each_on_demand_node_once(actions: list[tuple[Any, ...]]) -> None:
    it = Pools()
    for name in NODES:
        it.node(name, ON_DEMAND_LABELS)
    it.tick()
    used: set[tuple[str, str]] = set()
    seconds = 0
    for action in actions:
        if action[0] == "pod":
            _, pool, node, there = action
            it.pod(pool, node, there=there)
            (used.add if there else used.discard)((pool, node))
            it.tick()
        else:
            it.wait(action[1])
            seconds += TICK * action[1] * len({node for _, node in used})
    assert it.cost("on_demand") == pytest.approx(seconds / 3600)


def test_a_spot_node_of_another_pool_is_no_on_demand_node() -> None:
    it = Pools(fallback_labels={"machine": "large"})
    it.node("x", {"machine": "large", "pool": "second"})
    it.tick()
    it.pod("first", "x")
    it.wait(120)
    assert it.cost("spot") == pytest.approx(0.25)
    assert it.cost("on_demand") == 0
    conditions = {one.type: one for one in it.status["first"].conditions}
    assert conditions["Ready"].reason == "FallbackOverlaps"
    assert "spec.fallback.onDemandSelector" in conditions["Ready"].message
    assert "second" in conditions["Ready"].message


def test_an_on_demand_node_costs_until_the_pool_has_left_it() -> None:
    it = Pools()
    it.node("x", ON_DEMAND_LABELS)
    it.pod("first", "x")
    it.tick()
    it.now += timedelta(seconds=7)
    it.pod("first", "x", there=False)
    it.tick()
    it.wait(5)
    assert it.cost("on_demand") == pytest.approx(7 / 3600)
