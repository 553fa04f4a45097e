"""Tests of TrainingJobs whose Independent roles use a SpotPool."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controllers.independents import FIRST, ROLLOUT, WORKER, counts, group, restart
from tests.unit.controllers.spot_cluster import LABELS, ON_DEMAND_LABELS, make_pool

from convoy_controllers.spotpool.placement import placed
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_crds.spotpool import SpotPool
from convoy_crds.spotpool_status import CapacityMode, Grant
from convoy_crds.terms import ANNOTATION_CAPACITY, ANNOTATION_INTENT, LABEL_SPOT_POOL

FALLBACK = {"onDemandSelector": {"matchLabels": ON_DEMAND_LABELS}}
SPOT, ON_DEMAND = CapacityMode.SPOT, CapacityMode.ON_DEMAND


def pool(pods: int | None, reason: str = "", mode: CapacityMode = SPOT, **spec: Any) -> SpotPool:
    """Return a pool that grants the role `rollout` this number of pods; None without a grant."""
    found = make_pool(**spec)
    if pods is not None:
        found.status.grants = [
            Grant(
                namespace="default",
                job="job",
                role="rollout",
                pods=pods,
                mode=mode,
                reason=reason,
                message=f"because of {reason}" if reason else "",
            )
        ]
    return found


def make_cluster(found: SpotPool | None, replicas: int = 3) -> ToyCluster:
    """Return a cluster whose job of two workers runs, with rollout pods on a pool."""
    rollout = {**ROLLOUT, "replicas": replicas, "spotPool": "pool"}
    toy = ToyCluster(make_job(roles=[WORKER, rollout]), make_engine())
    if found is not None:
        toy.pools["pool"] = found
    return toy.settle()


def rollouts(toy: ToyCluster) -> list[str]:
    return sorted(name for name in toy.pods if name.startswith("job-rollout-"))


def manifest(toy: ToyCluster, name: str = FIRST) -> Any:
    """Return the latest manifest of a pod."""
    bodies = [body for made in toy.plans for body in made.manifests]
    return [body for body in bodies if body["metadata"]["name"] == name][-1]


@pytest.mark.parametrize(
    ("found", "pods", "condition"),
    [
        (None, 0, ("False", "UnknownPool")),
        (pool(None), 0, ("Unknown", "PoolPending")),
        (pool(0, "PoolNotAllowed"), 0, ("False", "PoolNotAllowed")),
        (pool(0, "PoolBudgetSpent"), 0, ("False", "PoolBudgetSpent")),
        (pool(2, "PoolFull"), 2, ("False", "PoolFull")),
        (pool(3), 3, ("True", "PoolGranted")),
    ],
)
def test_a_job_creates_no_more_pods_than_granted(
    found: SpotPool | None, pods: int, condition: tuple[str, str]
) -> None:
    toy = make_cluster(found)
    assert len(rollouts(toy)) == pods
    assert toy.condition["SpotPoolReady"] == condition
    assert toy.condition["Running"][0] == "True"
    assert toy.job.status.ready == "2/2"


def test_the_condition_names_the_field_and_the_known_pools() -> None:
    toy = make_cluster(None)
    (found,) = [one for one in toy.job.status.conditions if one.type == "SpotPoolReady"]
    assert found.message.startswith("spec.roles[1].spotPool: SpotPool 'pool' does not exist")


def test_a_job_without_a_pool_has_no_condition() -> None:
    toy = ToyCluster(make_job(roles=[WORKER, ROLLOUT]), make_engine()).settle()
    assert "SpotPoolReady" not in toy.condition
    assert LABEL_SPOT_POOL not in manifest(toy)["metadata"]["labels"]


def test_pods_get_the_selector_and_the_tolerations_of_the_pool() -> None:
    tolerations = [{"key": "spot", "effect": "NoSchedule"}]
    body = manifest(make_cluster(pool(3, tolerations=tolerations)))
    assert body["metadata"]["labels"][LABEL_SPOT_POOL] == "pool"
    assert body["spec"]["nodeSelector"].items() >= LABELS.items()
    keys = {one["key"] for one in body["spec"]["tolerations"]}
    assert keys >= {"spot", "cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority"}


def test_pods_of_the_group_get_nothing_of_the_pool() -> None:
    body = manifest(make_cluster(pool(3)), "job-worker-0")
    assert LABEL_SPOT_POOL not in body["metadata"]["labels"]
    assert "tolerations" not in body["spec"]


def test_expressions_are_added_to_each_term_of_the_users_affinity() -> None:
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    mine = {"key": "gpu", "operator": "Exists"}
    user = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [mine]}, {"matchFields": []}]
        }
    }
    body: dict[str, Any] = {"metadata": {"annotations": {}}, "spec": {"affinity": {"nodeAffinity": user}}}
    found = placed(body, pool(1, selector={"matchExpressions": [expression]}), SPOT)
    terms = found["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"] == [
        {"matchExpressions": [mine, expression]},
        {"matchFields": [], "matchExpressions": [expression]},
    ]
    assert body["spec"]["affinity"]["nodeAffinity"] == user


def test_a_fallback_places_pods_on_on_demand_nodes() -> None:
    body = manifest(make_cluster(pool(3, mode=ON_DEMAND, fallback=FALLBACK)))
    assert body["metadata"]["annotations"][ANNOTATION_CAPACITY] == "OnDemand"
    assert body["spec"]["nodeSelector"].items() >= ON_DEMAND_LABELS.items()
    assert "tolerations" not in body["spec"]


def test_pods_that_wait_for_a_node_move_when_the_mode_changes() -> None:
    toy = ToyCluster(make_job(roles=[WORKER, {**ROLLOUT, "spotPool": "pool"}]), make_engine())
    toy.settle()
    toy.schedulable = False
    toy.pools["pool"] = pool(3, fallback=FALLBACK)
    toy.settle()
    before = [toy.pods[name].uid for name in rollouts(toy)]
    assert len(before) == 3
    toy.pools["pool"] = pool(3, mode=ON_DEMAND, fallback=FALLBACK)
    toy.settle()
    assert not {toy.pods[name].uid for name in rollouts(toy)} & set(before)
    assert manifest(toy)["metadata"]["annotations"][ANNOTATION_CAPACITY] == "OnDemand"


@pytest.mark.parametrize(
    ("spec", "moved"),
    [
        ({"selector": {"matchLabels": {"pool": "a"}}}, True),
        ({"tolerations": [{"key": "spot", "effect": "NoSchedule"}]}, True),
        ({"maxNodes": 9, "notice": {"minSeconds": 30}}, False),
    ],
)
def test_pods_that_wait_for_a_node_follow_changes_of_the_pool(spec: dict[str, Any], moved: bool) -> None:
    """A wrong selector or a missing toleration would else keep them waiting for ever."""
    toy = ToyCluster(make_job(roles=[WORKER, {**ROLLOUT, "spotPool": "pool"}]), make_engine()).settle()
    toy.schedulable = False
    toy.pools["pool"] = pool(3)
    toy.settle()
    before = {toy.pods[name].uid for name in rollouts(toy)}
    toy.pools["pool"] = pool(3, **spec)
    toy.settle()
    after = {toy.pods[name].uid for name in rollouts(toy)}
    assert len(after) == 3
    assert after.isdisjoint(before) if moved else after == before
    if moved:
        body = manifest(toy)["spec"]
        assert body["nodeSelector"].items() >= spec.get("selector", {}).get("matchLabels", LABELS).items()
        assert ("spot" in {one["key"] for one in body["tolerations"]}) == ("tolerations" in spec)


def test_pods_that_wait_for_a_node_are_deleted_above_the_grant() -> None:
    toy = ToyCluster(make_job(roles=[WORKER, {**ROLLOUT, "spotPool": "pool"}]), make_engine())
    toy.settle()
    toy.schedulable = False
    toy.pools["pool"] = pool(3)
    toy.settle()
    toy.pools["pool"] = pool(1, "PoolFull")
    toy.settle()
    assert rollouts(toy) == [FIRST]


def test_running_pods_survive_changes_of_the_pool() -> None:
    toy = make_cluster(pool(3))
    before = {name: toy.pods[name].uid for name in rollouts(toy)}
    intent = manifest(toy)["metadata"]["annotations"][ANNOTATION_INTENT]
    toy.pools["pool"] = pool(3, mode=ON_DEMAND, fallback=FALLBACK, tolerations=[{"key": "x"}])
    toy.settle()
    assert {name: toy.pods[name].uid for name in rollouts(toy)} == before
    assert toy.pods[FIRST].annotations[ANNOTATION_INTENT] == intent
    del toy.pools["pool"]
    toy.settle()
    assert {name: toy.pods[name].uid for name in rollouts(toy)} == before


def test_an_evicted_pod_counts_as_preempted_and_comes_back_only_if_granted() -> None:
    toy = make_cluster(pool(3))
    before = group(toy)
    toy.pod(
        FIRST,
        deleting=True,
        leaving_since=toy.now.timestamp(),
        disruption="EvictionByEvictionAPI",
    ).settle()
    toy.lose(FIRST)
    toy.pools["pool"] = pool(2, "PoolFull")
    restart(toy)
    assert FIRST not in toy.pods
    toy.pools["pool"] = pool(3)
    restart(toy)
    assert FIRST in toy.pods
    assert (counts(toy).preemptions, counts(toy).restarts) == (1, 0)
    assert group(toy) == before


def elastic(pods: int, minimum: int = 1) -> ToyCluster:
    """Return a cluster whose job has an elastic role of four workers on a pool that grants `pods`."""
    role = {"name": "rollout", "replicas": 4, "minReplicas": minimum, "spotPool": "pool"}
    toy = ToyCluster(make_job(roles=[role]), make_engine())
    toy.pools["pool"] = pool(pods, "PoolFull" if pods < 4 else "")
    return toy.settle()


@pytest.mark.parametrize(("pods", "ready"), [(4, "4/4"), (2, "2/4"), (1, "1/4")])
def test_an_elastic_group_forms_from_the_granted_pods_at_once(pods: int, ready: str) -> None:
    toy = elastic(pods)
    assert len(rollouts(toy)) == pods
    assert toy.job.status.ready == ready
    assert toy.condition["Running"][0] == "True"
    body = manifest(toy)
    assert body["spec"]["nodeSelector"].items() >= LABELS.items()
    assert body["metadata"]["labels"][LABEL_SPOT_POOL] == "pool"


def test_an_elastic_group_waits_for_its_minimum() -> None:
    toy = elastic(2, minimum=3)
    assert toy.condition["Running"][0] == "False"
    assert toy.condition["SpotPoolReady"] == ("False", "PoolFull")
    toy.pools["pool"] = pool(3, "PoolFull")
    toy.settle()
    assert toy.job.status.ready == "3/4"


def test_an_elastic_group_shrinks_without_using_its_budget_and_grows_again() -> None:
    toy = elastic(4)
    toy.pod(FIRST, phase="Failed", kubelet_reason="", termination_reason="").settle()
    toy.pools["pool"] = pool(3, "PoolFull")
    toy.lose(FIRST)
    restart(toy)
    assert toy.job.status.ready == "3/4"
    assert toy.job.status.restarts.counted == 0
    toy.pools["pool"] = pool(4)
    toy.settle()
    assert FIRST in toy.pods
