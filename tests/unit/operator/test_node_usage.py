"""Tests of the room on nodes, as the operator counts it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convoy_controllers.cached import CachedObject, Node, OtherPod
from convoy_controllers.children import Create
from convoy_controllers.placement.rooms import RoomTable
from convoy_controllers.plan import Plan
from convoy_controllers.resources import PODS, TRAINING_JOBS
from convoy_crds.terms import ANNOTATION_PLANNED_NODE, LABEL_JOB
from convoy_operator import views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.reader import ClusterReader

from .conftest import FakeApi
from .reconciling import Operator

NODE = Node("n1", "uid-n1", 1, agent_ready=True, ready=True, allocatable={"cpu": 8000})
JOB = CachedObject("default", "job", "uid-job", 1, {"metadata": {"name": "job"}})


def manifest(name: str = "job-worker-0", *, planned: str = "n1", owner: str = "uid-job") -> dict[str, Any]:
    """A pod of the job with one core."""
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "5",
            "labels": {LABEL_JOB: "job"},
            "annotations": {ANNOTATION_PLANNED_NODE: planned},
            "ownerReferences": [{"uid": owner, "controller": True}],
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
    }


@pytest.fixture
def cache() -> ClusterCache:
    found = ClusterCache()
    found.nodes.upsert(NODE)
    found.jobs.upsert(JOB)
    return found


def cpu(cache: ClusterCache) -> int:
    """Return the room on the node, in cores."""
    return cache.usage.rooms()["n1"].free["cpu"] // 1000


def test_a_planned_pod_of_a_job_counts_until_it_ends(cache: ClusterCache) -> None:
    cache.pods.upsert(views.pod(manifest()))
    assert cpu(cache) == 7
    ended = manifest() | {"status": {"phase": "Succeeded"}}
    ended["metadata"]["resourceVersion"] = "6"
    cache.pods.upsert(views.pod(ended))
    assert cpu(cache) == 8


@pytest.mark.parametrize("owner", ["", "uid-other"])
def test_a_planned_node_without_a_job_as_controller_does_not_count(cache: ClusterCache, owner: str) -> None:
    cache.pods.upsert(views.pod(manifest(owner=owner)))
    assert cpu(cache) == 8


def test_a_job_that_appears_after_its_pods_reserves_their_room() -> None:
    found = ClusterCache()
    found.nodes.upsert(NODE)
    found.pods.upsert(views.pod(manifest()))
    assert cpu(found) == 8
    found.jobs.upsert(JOB)
    assert cpu(found) == 7
    found.jobs.remove(JOB)
    assert cpu(found) == 8


def test_a_pod_that_is_created_counts_once(cache: ClusterCache) -> None:
    with cache.usage.creating([manifest()]):
        before = cache.usage.rooms()
        assert cpu(cache) == 7
        cache.pods.upsert(views.pod(manifest()), own=True)
        assert cache.usage.rooms() is before, "the room is the same"
    assert cpu(cache) == 7


def test_the_table_stays_until_the_room_changes(cache: ClusterCache) -> None:
    first = cache.usage.rooms()
    cache.nodes.upsert(replace(NODE, version=2, qualified={"lastHeartbeatTime": "now"}))
    assert cache.usage.rooms() is first
    cache.other_pods.upsert(OtherPod("default", "web", "uid-web", 1, "n1", {"cpu": 2000}))
    second = cache.usage.rooms()
    assert second.version > first.version and cpu(cache) == 6
    cache.nodes.upsert(replace(NODE, version=3, cordoned=True))
    assert cache.usage.rooms().version > second.version and cache.usage.rooms()["n1"].node.cordoned
    cache.nodes.remove(replace(NODE, version=3))
    assert not cache.usage.rooms()


def test_results_that_depend_on_nodes_alone_outlive_a_change_of_the_room(cache: ClusterCache) -> None:
    computed = []

    def compute() -> int:
        computed.append(1)
        return len(computed)

    def results(table: RoomTable) -> tuple[int, int]:
        return table.shared("nodes", compute, nodes_only=True), table.shared("room", compute)

    assert results(cache.usage.rooms()) == results(cache.usage.rooms()) == (1, 2)
    cache.other_pods.upsert(OtherPod("default", "web", "uid-web", 1, "n1", {"cpu": 2000}))
    assert results(cache.usage.rooms()) == (1, 3)
    cache.nodes.upsert(replace(NODE, version=2, labels={"rack": "r1"}))
    assert results(cache.usage.rooms()) == (4, 5)


def test_the_table_names_the_number_of_waiting_jobs(cache: ClusterCache) -> None:
    cache.others_known = True
    reader = ClusterReader(cache, None)  # type: ignore[arg-type]
    waits = {"status": {"conditions": [{"type": "Running", "reason": "NoRoomTogether"}]}}
    cache.jobs.upsert(replace(JOB, version=2, raw={**JOB.raw, **waits}))
    found = reader.rooms()
    assert isinstance(found, RoomTable) and found.waiting == 1
    cache.jobs.upsert(replace(JOB, version=3))
    reader.rooms()
    assert found.waiting == 0


async def test_planned_pods_count_from_the_first_request_of_their_plan(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker plans while this one waits for the response to a request."""
    it = Operator(api)
    it.cache.nodes.upsert(NODE)
    raw = api.put(TRAINING_JOBS, {"metadata": {"name": "job", "generation": 1}, "spec": {}}, "default")
    it.cache.upsert(TRAINING_JOBS, raw)
    seen: list[tuple[str, int]] = []

    async def planned(*parts: object) -> Plan:
        body = manifest(owner=raw["metadata"]["uid"])
        return Plan(status={"phase": "Pending"}, status_first=True, children=(Create(PODS, body),))

    def note(verb: str, plural: str, name: str) -> None:
        seen.append((f"{verb} {plural}", cpu(it.cache)))

    monkeypatch.setattr(it.reconciler, "_plan", planned)
    api.fail = note
    await it.reconcile_all("TrainingJob")
    assert seen[:2] == [("patch_status trainingjobs", 7), ("create pods", 7)]
    assert cpu(it.cache) == 7
