"""Tests of the keys and the delays that changes of the cluster cache add to the queue."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.cached import CachedObject, Node, Pod
from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.keys import Key
from convoy_controllers.testing.hub import FakeHub
from convoy_crds import checkpointstore, engine
from convoy_operator import views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.reader import ClusterReader
from convoy_operator.triggers import Triggers

JOB = Key("TrainingJob", "ns", "j")


class Queue:
    def __init__(self) -> None:
        self.added: list[tuple[Key, float, bool]] = []

    def add(self, key: Key, delay: float = 0.0, *, high: bool = True) -> None:
        self.added.append((key, delay, high))

    def drain(self) -> list[tuple[Key, float, bool]]:
        drained, self.added = self.added, []
        return drained


def triggered(cache: ClusterCache) -> Queue:
    """Return a queue that the controllers of jobs and their dependencies fill from this cache."""
    queue = Queue()
    found = [one for one in CONTROLLERS if one.resource.kind in ("TrainingJob", "Engine", "CheckpointStore")]
    Triggers(cache, ClusterReader(cache, FakeHub()), queue, 0.15, found)  # type: ignore[arg-type]
    return queue


@pytest.fixture
def cache() -> ClusterCache:
    return ClusterCache()


@pytest.fixture
def queue(cache: ClusterCache) -> Queue:
    return triggered(cache)


def job(version: int, generation: int = 1, phase: str = "", named: str = "") -> CachedObject:
    raw: dict[str, Any] = {
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": str(version),
            "generation": generation,
        },
        "spec": {"engine": {"name": named}} if named else {},
    }
    return views.cached_object(raw | ({"status": {"phase": phase}} if phase else {}))


def pod(
    version: int,
    phase: str = "Pending",
    on: str = "",
    job: str = "j",
    deleting: bool = False,
    **status: Any,
) -> Pod:
    return views.pod(
        {
            "metadata": {
                **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}),
                "name": f"{job}-w-0",
                "namespace": "ns",
                "uid": f"{job}-p",
                "resourceVersion": str(version),
                "labels": {"convoy.dev/job": job},
                "ownerReferences": [{"uid": "u" if job == "j" else "other", "controller": True}],
            },
            "spec": {"nodeName": on},
            "status": {"phase": phase, **status},
        }
    )


def node(
    version: int,
    ready: str = "True",
    cordoned: bool = False,
    label: str = "true",
    uid: str = "n",
    name: str = "n",
) -> Node:
    metadata = {
        "name": name,
        "uid": uid,
        "resourceVersion": str(version),
        "labels": {"convoy.dev/agent-ready": label},
    }
    status = {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": str(version)}]}
    return views.node({"metadata": metadata, "spec": {"unschedulable": cordoned}, "status": status})


def test_a_spec_change_has_no_delay_and_a_status_change_a_short_one(
    cache: ClusterCache, queue: Queue
) -> None:
    cache.jobs.upsert(job(1))
    assert queue.drain() == [(JOB, 0.0, True)]
    cache.jobs.upsert(job(2, phase="Running"))
    assert queue.drain() == [(JOB, 0.15, False)]
    cache.jobs.upsert(job(3, generation=2))
    assert queue.drain() == [(JOB, 0.0, True)]


def test_an_own_status_write_wakes_no_object(cache: ClusterCache, queue: Queue) -> None:
    cache.jobs.upsert(job(1))
    queue.drain()
    cache.jobs.upsert(job(2, phase="Running"), own=True)
    assert queue.drain() == []


def test_a_pod_change_wakes_its_job_soon_and_a_pod_end_immediately(cache: ClusterCache, queue: Queue) -> None:
    cache.pods.upsert(pod(1))
    assert queue.drain() == [(JOB, 0.15, True)]
    cache.pods.upsert(pod(2))
    assert queue.drain() == [], "no plan would see a difference"
    cache.pods.upsert(pod(3, "Running", podIP="10.0.0.1"))
    assert queue.drain() == [(JOB, 0.15, True)]
    cache.pods.upsert(pod(4, "Failed"))
    assert queue.drain() == [(JOB, 0.0, True)]
    cache.pods.remove(pod(5, "Failed"))
    assert queue.drain() == [(JOB, 0.0, True)]


def test_an_engine_change_wakes_the_engine_and_its_jobs(cache: ClusterCache, queue: Queue) -> None:
    cache.jobs.upsert(job(1, named="odb"))
    queue.drain()
    cache.objects(engine.KIND).upsert(
        views.cached_object({"metadata": {"name": "odb", "uid": "e", "resourceVersion": "2"}})
    )
    assert set(queue.drain()) == {(Key("Engine", "", "odb"), 0.0, True), (JOB, 0.15, True)}
    cache.objects(engine.KIND).upsert(
        views.cached_object({"metadata": {"name": "else", "uid": "f", "resourceVersion": "3"}})
    )
    assert queue.drain() == [(Key("Engine", "", "else"), 0.0, True)]


def test_a_relevant_store_change_wakes_the_store_and_its_jobs(cache: ClusterCache, queue: Queue) -> None:
    tiers = {"local": {}, "remote": {"store": "s3"}}
    named = job(1).raw | {"spec": {"checkpoint": {"tiers": tiers}}}
    cache.jobs.upsert(views.cached_object(named))
    queue.drain()

    def upsert(version: int, own: bool = False, name: str = "s3", **status: Any) -> None:
        metadata = {"name": name, "uid": name, "resourceVersion": str(version), "generation": 1}
        raw = {"metadata": metadata, "spec": {"allowedNamespaces": ["*"]}, "status": status}
        cache.objects(checkpointstore.KIND).upsert(views.cached_object(raw), own=own)

    itself = Key("CheckpointStore", "", "s3")
    upsert(2)
    assert set(queue.drain()) == {(itself, 0.0, True), (JOB, 0.15, True)}
    upsert(3, own=True, conditions=[{"type": "Ready", "status": "True"}])
    assert queue.drain() == [(JOB, 0.15, True)], "the store's own status write queues jobs"
    upsert(4, own=True, conditions=[{"type": "Ready", "status": "True"}], probedAt="2026-01-01T00:00:00Z")
    assert queue.drain() == []
    upsert(5, name="else")
    assert queue.drain() == [(Key("CheckpointStore", "", "else"), 0.0, True)]
    (found,) = (one for one in cache.objects(checkpointstore.KIND) if one.name == "s3")
    cache.objects(checkpointstore.KIND).remove(found)
    assert set(queue.drain()) == {(itself, 0.0, True), (JOB, 0.15, True)}


def test_the_first_agent_node_wakes_all_unfinished_jobs(cache: ClusterCache, queue: Queue) -> None:
    cache.jobs.upsert(job(1))
    queue.drain()

    def node(version: int, ready: str) -> Node:
        labels = {"convoy.dev/agent-ready": ready}
        return views.node(
            {"metadata": {"name": "n", "uid": "n", "resourceVersion": str(version), "labels": labels}}
        )

    cache.nodes.upsert(node(1, "false"))
    assert queue.drain() == []
    cache.nodes.upsert(node(2, "true"))
    assert queue.drain() == [(JOB, 0.15, True)]
    assert cache.agent_nodes == 1
    cache.jobs.upsert(job(3, phase="Succeeded"))
    queue.drain()
    cache.nodes.upsert(node(4, "false"))
    assert queue.drain() == []


def test_pods_are_indexed_by_node_while_they_occupy_the_node(cache: ClusterCache) -> None:
    cache.pods.upsert(pod(1))
    assert not list(cache.occupied) and cache.pods_on("n") == ()
    cache.pods.upsert(pod(2, on="n"))
    assert not list(cache.occupied), "anybody can give a pod the label of a job"
    cache.jobs.upsert(job(1))
    cache.pods.upsert(pod(3, on="n", job="k"))
    assert list(cache.occupied) == ["n"]
    assert {item.uid for item in cache.pods_on("n")} == {"j-p", "k-p"}
    assert cache.jobs_on("n") == {JOB, Key("TrainingJob", "ns", "k")}
    cache.pods.upsert(pod(4, "Failed", on="n"))
    assert cache.jobs_on("n") == {Key("TrainingJob", "ns", "k")}
    cache.pods.upsert(pod(5, "Failed", on="n", deleting=True))
    assert cache.jobs_on("n") == {JOB, Key("TrainingJob", "ns", "k")}, (
        "the kubelet still has to remove the pod"
    )
    cache.pods.remove(pod(6, "Failed", on="n"))
    cache.pods.remove(pod(5, on="n", job="k"))
    assert not list(cache.occupied) and cache.jobs_on("n") == set()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda cache: cache.nodes.remove(node(9)), id="its Node object is gone"),
        pytest.param(lambda cache: cache.nodes.upsert(node(9, ready="Unknown")), id="its kubelet is silent"),
        pytest.param(lambda cache: cache.nodes.upsert(node(9, cordoned=True)), id="it is cordoned"),
        pytest.param(lambda cache: cache.nodes.upsert(node(9, label="")), id="it has no agent any more"),
    ],
)
def test_a_node_change_wakes_only_the_jobs_on_the_node(change: Any) -> None:
    cache = ClusterCache()
    queue = triggered(cache)
    cache.nodes.upsert(node(1, name="other", uid="o"))
    cache.nodes.upsert(node(1))
    cache.pods.upsert(pod(2, on="n"))
    cache.pods.upsert(pod(3, on="other", job="k"))
    queue.drain()
    cache.nodes.upsert(node(4))
    assert queue.drain() == [], "a heartbeat of the node changes nothing"
    change(cache)
    assert queue.drain() == [(JOB, 0.15, True)]


def test_a_returning_node_wakes_its_former_jobs(cache: ClusterCache, queue: Queue) -> None:
    cache.nodes.upsert(node(1, label=""))
    cache.pods.upsert(pod(2, on="n"))
    cache.nodes.remove(node(3))
    queue.drain()
    cache.nodes.upsert(node(4, label="", uid="born again"))
    assert queue.drain() == [(JOB, 0.15, True)]


def test_a_node_change_does_not_scan_jobs_on_other_nodes(
    cache: ClusterCache, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.nodes.upsert(node(1))
    cache.jobs.upsert(job(2))
    queue.drain()
    monkeypatch.setattr(ClusterReader, "live", lambda *args: pytest.fail("a scan"))
    cache.nodes.upsert(node(3, ready="False"))
    assert queue.drain() == []


def test_jobs_are_counted_by_phase(cache: ClusterCache) -> None:
    cache.jobs.upsert(job(1))
    assert (cache.active, cache.phases["Pending"]) == (1, 1)
    cache.jobs.upsert(job(2, phase="Running"), own=True)
    assert (cache.active, cache.phases["Pending"], cache.phases["Running"]) == (1, 0, 1)
    cache.jobs.upsert(job(3, phase="Failed"))
    assert cache.active == 0
    cache.jobs.remove(job(4))
    assert cache.phases.total() == 0


def test_a_job_wakes_jobs_that_resume_from_its_checkpoint(cache: ClusterCache, queue: Queue) -> None:
    waiting: dict[str, Any] = {
        "metadata": {"name": "next", "namespace": "ns", "uid": "n", "resourceVersion": "1", "generation": 1},
        "spec": {"checkpoint": {"resumeFrom": {"job": "j"}}},
    }
    following = Key("TrainingJob", "ns", "next")
    cache.jobs.upsert(views.cached_object(waiting))
    queue.drain()
    cache.jobs.upsert(job(2))
    assert following in {key for key, *_ in queue.drain()}, "the job exists now"
    saved = job(3)
    marked = {**saved.raw, "status": {"checkpoint": {"watermarks": {"remote": {"step": 5}}}}}
    cache.jobs.upsert(views.cached_object(marked), own=True)
    assert [key for key, *_ in queue.drain()] == [following], "the job has a checkpoint in the store now"
    metadata = {**waiting["metadata"], "resourceVersion": "4"}
    cache.jobs.upsert(views.cached_object({**waiting, "metadata": metadata, "status": {"incarnation": 1}}))
    queue.drain()
    cache.jobs.upsert(job(5, generation=2))
    assert following not in {key for key, *_ in queue.drain()}, "the job has started"
