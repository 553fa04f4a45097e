"""Tests of a slow node that also has a replica of a ServingJob: the ServingJob itself empties the node."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.unit.operator.guarded_cluster import MINUTE, Cluster

from convoy_controllers.resources import PODS
from convoy_crds.servingjob import KIND
from convoy_operator import views

from .conftest import FakeApi

POD = "llm-server-0-0"


def add_replica(it: Cluster, node: str) -> None:
    """Add a ServingJob with one pod on the node."""
    spec = {"roles": [{"name": "server", "engine": {"name": "lm"}}]}
    metadata = {"name": "llm", "namespace": "default", "uid": "llm-uid", "resourceVersion": "1"}
    job: dict[str, Any] = {"kind": KIND.name, "metadata": metadata, "spec": spec}
    it.cache.objects(KIND).upsert(views.cached_object(job))
    labels = {"convoy.dev/job": "llm", "convoy.dev/kind": KIND.name}
    owner = {"controller": True, "kind": KIND.name, "name": "llm", "uid": "llm-uid"}
    pod = {
        "metadata": {"name": POD, "uid": "server-pod", "labels": labels, "ownerReferences": [owner]},
        "spec": {"nodeName": node},
        "status": {"phase": "Running"},
    }
    it.api.put(PODS, pod, "default")
    it.sync()


def test_a_replica_is_not_evicted_and_the_node_drains_when_it_has_left(api: FakeApi) -> None:
    it = Cluster(api)
    it.reconcile()
    add_replica(it, "n0")
    for _ in range(10):
        it.accuse("n0", loss=200.0)
        it.reconcile(MINUTE)
        it.job(saved=timedelta(0))
    assert it.state() == "Quarantined" and it.evicted() == []
    assert it.node()["metadata"]["labels"]["convoy.dev/node-health"] == "Quarantined"
    # The ServingJob has replaced its replica.
    api.objects.pop((PODS.plural, "default", POD))
    it.cache.pods.remove(next(pod for pod in it.cache.pods if pod.name == POD))
    for _ in range(3):
        it.accuse("n0", loss=200.0)
        it.reconcile(timedelta(seconds=20))
    assert it.state() == "Draining" and set(it.evicted()) == {"job-worker-0"}
