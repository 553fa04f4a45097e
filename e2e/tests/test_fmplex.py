"""Test of the engine fmplex on real nodes: two pods share the tasks of a replica."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from convoy_workloads.engines.fmplex import ENGINE
from e2e.cluster.cluster import Cluster
from e2e.drive.job_specs import single_threaded
from e2e.drive.perturbations import kill_rank
from e2e.drive.serving_jobs import ServingJobs

TASKS = [
    {"name": "words", "adapter_ref": "seed:1", "head": "classify:3", "weight": 2.0},
    {"name": "photos", "backbone_ref": "image", "head": "classify:3"},
]
TEXT = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["where is it"]}
IMAGE = {"name": "image", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": [0.25] * 768}
SENT = {"words": TEXT, "photos": IMAGE}


def results(url: str) -> dict[str, Any]:
    """Return the result of each task."""
    return {task: infer(url, task, tensor) for task, tensor in SENT.items()}


def infer(url: str, task: str, tensor: dict[str, Any]) -> Any:
    data = json.dumps({"inputs": [tensor]}).encode()
    with urllib.request.urlopen(f"{url}/v2/models/{task}/infer", data, timeout=10) as response:
        return json.load(response)["outputs"]


def accepts(url: str) -> bool:
    try:
        pods_of_tasks(url)
    except OSError:
        return False
    return True


def pods_of_tasks(url: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as response:
        return {one["id"]: one["pod"] for one in json.load(response)["data"]}


def admin(cluster: Cluster, namespace: str, pod: str, *arguments: str) -> Any:
    """Call an admin route inside a pod."""
    command = ["python", "-m", "convoy_workloads.serving.admin_client", *arguments]
    return json.loads(cluster.kubectl("-n", namespace, "exec", pod, "--", *command))


@pytest.mark.full
def test_the_pods_of_a_replica_share_the_tasks_and_restart_together(
    cluster: Cluster, serving: ServingJobs
) -> None:
    engine = {"name": "fmplex", "params": {**ENGINE.small, "tasks": TASKS}}
    role = single_threaded({"name": "server", "groupSize": 2, "engine": engine})
    serving.create("plex", roles=[role], replicas=1, rollout={"drainSeconds": 5})
    serving.wait_rolled("plex")
    url = serving.url("plex")
    assert pods_of_tasks(url) == {"words": 0, "photos": 1}
    before = results(url)

    first, second = sorted(serving.pods("plex"), key=lambda pod: pod.metadata.name)
    late = {"name": "late", "backbone_ref": "image", "adapter_ref": "seed:2", "head": "classify:2"}
    name, namespace = first.metadata.name, serving.namespace
    assert admin(cluster, namespace, name, "POST", "/tasks", json.dumps(late)) == {"attached": "late"}
    assert pods_of_tasks(url)["late"] == 1
    assert infer(url, "late", IMAGE)[0]["shape"] == [1, 2]
    assert admin(cluster, namespace, name, "DELETE", "/tasks/late") == {"detached": "late"}

    kill_rank(cluster, second.spec.node_name, second.metadata.uid, 1)
    serving.wait(lambda: serving.incarnation("plex") == 2, 30, "the second incarnation")
    serving.wait_rolled("plex")
    serving.wait(lambda: accepts(url), 15, "the proxies' knowledge of the ready replica")
    assert results(url) == before
