"""Tests of the input of a SpotPool's plans: its nodes, their pods, and the roles that claim it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controllers.spot_cluster import LABELS, ON_DEMAND_LABELS, START, make_pool

from convoy_controllers.cached import CachedObject, Node, Pod
from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.keys import Key
from convoy_controllers.spotpool.controller import CONTROLLER
from convoy_controllers.spotpool.notice import Notice
from convoy_controllers.spotpool.observe import observe
from convoy_controllers.spotpool.observed import Observed
from convoy_controllers.testing.builders import make_job
from convoy_controllers.testing.hub import FakeHub
from convoy_controllers.views import PodView
from convoy_crds import spotpool, trainingjob
from convoy_crds.spotpool_status import NoticeSource
from convoy_crds.terms import LABEL_ROLE, LABEL_SPOT_POOL
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.reader import ClusterReader

WORKER = {"name": "worker", "replicas": 1}
ROLLOUT = {"name": "rollout", "replicas": 3, "membership": "Independent", "spotPool": "pool"}


class Cached:
    """The operator's caches with one pool, and the reader of them."""

    def __init__(self, **spec: Any) -> None:
        self.cache, self.hub = ClusterCache(CONTROLLERS), FakeHub()
        self.reader = ClusterReader(self.cache, self.hub)
        self.pool("pool", **spec)

    def pool(self, name: str, **spec: Any) -> None:
        raw = make_pool(**spec).to_dict()
        raw["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        self.cache.objects(spotpool.KIND).upsert(CachedObject("", name, f"uid-{name}", 1, raw))

    def node(self, name: str, labels: dict[str, str] | None = None, *, ready: bool = True) -> None:
        labels = LABELS if labels is None else labels
        self.cache.nodes.upsert(Node(name, f"uid-{name}", 1, True, ready, labels=labels, created=START))

    def pod(self, name: str, node: str, pool: str | None = "pool", role: str = "rollout") -> None:
        labels = {LABEL_ROLE: role} | ({LABEL_SPOT_POOL: pool} if pool else {})
        view = PodView(name, f"uid-{name}", "Running", node, labels=labels, owner_uid="uid-job", created=5.0)
        self.cache.pods.upsert(Pod("default", 1, "job", view))

    def job(self, phase: str = "Running", **spec: Any) -> None:
        job = make_job(roles=[WORKER, ROLLOUT], **spec)
        raw = {**job.to_dict(), "status": {"phase": phase}}
        self.cache.objects(trainingjob.KIND).upsert(CachedObject("default", "job", "uid-job", 1, raw))

    def observed(self) -> Observed:
        found = observe(self.reader, Key("SpotPool", "", "pool"))
        assert found is not None
        return found


def test_a_pool_has_the_nodes_that_it_selects_and_its_pods_on_them() -> None:
    it = Cached()
    it.node("a")
    it.node("b", {})
    it.job()
    it.pod("mine", "a")
    it.pod("of-another-pool", "a", "other")
    it.pod("of-no-pool", "a", None)
    found = it.observed()
    assert [node.name for node in found.nodes] == ["a"]
    assert [(pod.name, pod.role, pod.node) for pod in found.pods] == [("mine", "rollout", "a")]
    assert found.existing == {"uid-a", "uid-b"}


def test_a_node_belongs_to_the_first_pool_by_name() -> None:
    it = Cached()
    it.node("a")
    it.pool("another")
    found = it.observed()
    assert found.nodes == ()
    assert found.overlaps == {"another": 1}


def test_on_demand_nodes_count_only_with_pods_of_the_pool() -> None:
    it = Cached(fallback={"onDemandSelector": {"matchLabels": ON_DEMAND_LABELS}})
    for name in ("used", "unused"):
        it.node(name, ON_DEMAND_LABELS)
    it.job()
    it.pod("mine", "used")
    found = it.observed()
    assert [node.name for node in found.on_demand] == ["used"]
    assert [pod.name for pod in found.pods] == ["mine"]


def test_a_role_claims_its_pool_and_shows_where_its_group_runs() -> None:
    it = Cached()
    it.node("a")
    it.node("b", {})
    it.job()
    it.pod("job-worker-0", "a", None, "worker")
    it.pod("job-rollout-0", "a")
    (claim,) = it.observed().claims
    assert (claim.key, claim.wanted, claim.trainer_nodes) == (("default", "job", "rollout"), 3, ("a",))


@pytest.mark.parametrize(
    ("phase", "spec"), [("Succeeded", {}), ("Failed", {}), ("Running", {"suspend": True})]
)
def test_a_job_that_does_not_run_claims_nothing(phase: str, spec: dict[str, Any]) -> None:
    it = Cached()
    it.job(phase, **spec)
    assert it.observed().claims == ()


def test_notices_of_agents_are_read() -> None:
    it = Cached()
    notice = Notice(NoticeSource.AWS, "a")
    it.hub.given_notices = {"a": (notice,), "": (Notice(NoticeSource.GCP, provider_id="x"),)}
    assert [one.source for one in it.observed().notices] == [NoticeSource.AWS, NoticeSource.GCP]


def test_only_ready_nodes_of_the_pool_have_problems_with_their_notices() -> None:
    it = Cached()
    it.node("a")
    it.node("b", ready=False)
    it.node("c", {})
    it.hub.given_problems = dict.fromkeys("abc", "status 503")
    assert it.observed().unread == {"a": "status 503"}


def test_a_pool_that_does_not_exist_has_no_plan() -> None:
    assert observe(Cached().reader, Key("SpotPool", "", "unknown")) is None


def test_changes_queue_the_pools_that_they_concern() -> None:
    it = Cached()
    nodes, pods, jobs, _ = CONTROLLER.watches
    spot = Node("a", "u", 1, True, labels=LABELS)
    assert list(nodes.keys(it.reader, spot, None)) == [("", "pool")]
    assert list(nodes.keys(it.reader, None, Node("b", "u", 1, True))) == []
    view = PodView("p", "u", "Running", labels={LABEL_SPOT_POOL: "pool"})
    assert list(pods.keys(it.reader, None, Pod("default", 1, "job", view))) == [("", "pool")]
    roles: list[Any] = [ROLLOUT, {"spotPool": 7}, "no role"]
    job = CachedObject("default", "job", "u", 1, {"metadata": {}, "spec": {"roles": roles}})
    assert list(jobs.keys(it.reader, job, None)) == [("", "pool")]
