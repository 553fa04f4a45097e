"""Tests of placement on real nodes: near pods in rank order, and room for a job of higher priority."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from e2e.drive.job_specs import ENDLESS, SMALL, memory
from e2e.drive.jobs import Jobs

RACK = "topology.kubernetes.io/rack"
HIGH = "e2e-high"


@pytest.fixture
def racks(cluster: Cluster) -> Iterator[dict[str, str]]:
    """Yield the rack of each worker node. The first node has a rack of its own."""
    names = sorted(node.name for node in cluster.nodes)
    found = {name: "r1" if at == 0 else "r2" for at, name in enumerate(names)}
    for name, rack in found.items():
        cluster.kubectl("label", "node", name, f"{RACK}={rack}", "--overwrite")
    yield found
    for name in found:
        cluster.kubectl("label", "node", name, f"{RACK}-")


@pytest.fixture
def high(cluster: Cluster) -> Iterator[str]:
    """Yield the name of a PriorityClass above the default."""
    manifest = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": HIGH},
        "value": 1000,
    }
    cluster.kubectl("apply", "-f", "-", text=json.dumps(manifest))
    yield HIGH
    cluster.kubectl("delete", "priorityclass", HIGH)


def requests(millicores: int, **spec: Any) -> dict[str, Any]:
    """Return a pod template that requests processor time."""
    resources = {"requests": {"cpu": f"{millicores}m"}}
    return {"spec": {"containers": [{"name": "worker", "resources": resources}], **spec}}


@pytest.mark.full
def test_pods_run_near_each_other_and_ranks_follow_the_racks(jobs: Jobs, racks: dict[str, str]) -> None:
    placement = {"topologyKeys": [RACK], "pack": "Required"}
    jobs.create("near", placement=placement)
    jobs.wait_phase("near", "Running")
    nodes = [pod.spec.node_name for pod in jobs.pods("near")]
    assert len({racks[node] for node in nodes}) == 1
    placed = jobs.status("near")["placement"]
    assert placed["summary"].startswith("1 rack, ")
    assert placed["keys"][0]["ranks"] == [{"name": racks[nodes[0]], "ranks": 2}]


@pytest.mark.full
def test_a_rack_that_no_node_has_holds_the_job_until_there_is_one(cluster: Cluster, jobs: Jobs) -> None:
    jobs.create("lost", placement={"topologyKeys": ["example.com/cage"], "pack": "Required"})
    status = jobs.wait_reason("lost", "UnknownTopologyKey", 30)
    assert "example.com/cage" in status["message"] and not jobs.pods("lost")
    name = sorted(node.name for node in cluster.nodes)[0]
    cluster.kubectl("label", "node", name, "example.com/cage=c1", "--overwrite")
    try:
        jobs.wait_phase("lost", "Succeeded", 120)
        assert {pod.spec.node_name for pod in jobs.pods("lost")} == {name}
    finally:
        cluster.kubectl("label", "node", name, "example.com/cage-")


@pytest.mark.full
def test_an_elastic_job_saves_and_gives_up_a_pod_for_a_job_of_higher_priority(
    cluster: Cluster, jobs: Jobs, high: str
) -> None:
    free = [json.loads(cluster.kubectl("get", "node", node.name, "-o", "json")) for node in cluster.nodes]
    size = min(_millicores(one["status"]["allocatable"]["cpu"]) for one in free) * 6 // 10
    count = len(free)
    role = {"name": "worker", "replicas": count, "minReplicas": count - 1, "template": requests(size)}
    jobs.create("low", engine={"name": "gpt", "params": ENDLESS}, roles=[role], checkpoint=memory("1s"))
    jobs.wait(lambda: jobs.status("low").get("ready") == f"{count}/{count}", 120, "the elastic job runs")
    jobs.wait(lambda: jobs.status("low").get("checkpoint", {}).get("step"), 60, "a checkpoint")
    template = requests(size, priorityClassName=high)
    params = {**SMALL, "steps": 400, "held_out_every": 400}
    jobs.create(
        "urgent",
        engine={"name": "gpt", "params": params},
        roles=[{"name": "worker", "replicas": 1, "template": template}],
    )
    jobs.wait(
        lambda: jobs.status("low").get("ready") == f"{count - 1}/{count}", 90, "the elastic job has shrunk"
    )
    last = jobs.status("low")["restarts"]["last"]
    assert (last["reason"], jobs.status("low")["restarts"]["counted"]) == ("Yielded", 0)
    saved = jobs.status("low")["checkpoint"]["step"]
    assert saved >= (last.get("step") or 0) - 1, "the pod that left has saved its last step"
    assert "MakingRoom" in jobs.events("urgent")
    jobs.wait_phase("urgent", "Succeeded", 120)
    whole = f"{count}/{count}"
    jobs.wait(lambda: jobs.status("low").get("ready") == whole, 180, "the elastic job grows again")
    assert "Preempted" not in jobs.events("low")


def _millicores(quantity: str) -> int:
    return int(quantity[:-1]) if quantity.endswith("m") else int(float(quantity) * 1000)
