"""Tests of the states that serving replicas save to the memory of nodes, on real nodes."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import pytest
import yaml

from e2e.cluster import files
from e2e.cluster.cluster import Cluster
from e2e.drive.cluster_state import leader, restore
from e2e.drive.job_specs import on_separate_nodes
from e2e.drive.perturbations import kill_rank
from e2e.drive.serving_jobs import ServingJobs, is_ready

EXAMPLES = files.CHECKOUT / "examples"
DOCUMENTS = 20_000
"""Number of documents in the index, which takes some seconds to build."""
SECONDS = 120.0


def create_search(serving: ServingJobs, name: str) -> None:
    """Create the job of examples/search.yaml with a small index, and its replicas on different nodes."""
    body = {"metadata": {"name": name}, "data": {"search.py": (EXAMPLES / "search.py").read_text()}}
    serving.core.create_namespaced_config_map(serving.namespace, body)
    spec: dict[str, Any] = yaml.safe_load((EXAMPLES / "search.yaml").read_text())["spec"]
    pod = spec["roles"][0]["template"]["spec"]
    pod["containers"][0]["env"] = [{"name": "DOCUMENTS", "value": str(DOCUMENTS)}]
    pod["volumes"][0]["configMap"]["name"] = name
    pod.update(on_separate_nodes(name)["spec"])
    serving.create(name, **spec, rollout={"drainSeconds": 5})


def origin(pod: Any) -> str:
    """Return where a ready pod has its index from; empty if it is not ready, or does not answer."""
    if not is_ready(pod) or not pod.status.pod_ip:
        return ""
    port = next(one.container_port for one in pod.spec.containers[0].ports if one.name == "convoy-http")
    try:
        with urllib.request.urlopen(f"http://{pod.status.pod_ip}:{port}/ready", timeout=5) as response:
            return str(json.load(response)["index"])
    except (OSError, ValueError):
        return ""


def restored(serving: ServingJobs, name: str) -> bool:
    """Return True if all replicas of a job serve, and have restored their index."""
    pods = [pod for pod in serving.pods(name) if pod.metadata.deletion_timestamp is None]
    return len(pods) == 2 and all(origin(pod).startswith("restored") for pod in pods)


def copied(serving: ServingJobs, name: str) -> bool:
    """Return True if both replicas have saved their state, with its copy."""
    status = serving.status(name).get("checkpoint") or {}
    return status.get("replicas") == status.get("copied") == 2


@pytest.mark.full
def test_an_index_survives_its_process_its_pod_and_its_node(cluster: Cluster, serving: ServingJobs) -> None:
    create_search(serving, "search")
    serving.wait_rolled("search", SECONDS)
    serving.wait(lambda: copied(serving, "search"), SECONDS, "both indexes are saved and copied")
    assert serving.condition("search", "Checkpointing") == ("True", "StatesSaved")

    for pod in serving.pods("search"):
        kill_rank(cluster, pod.spec.node_name, pod.metadata.uid, 0)
    serving.wait(lambda: restored(serving, "search"), SECONDS, "the killed ranks have restored their index")

    gone = serving.pods("search")[0].metadata
    serving.core.delete_namespaced_pod(gone.name, serving.namespace)
    serving.wait(
        lambda: (
            gone.uid not in {pod.metadata.uid for pod in serving.pods("search")}
            and restored(serving, "search")
        ),
        SECONDS,
        "the new replica has restored the index",
    )
    serving.wait(lambda: copied(serving, "search"), SECONDS, "the restored index is copied")

    busy, spared = leader(cluster)[1], cluster.nodes[0].name
    victims = [
        pod.spec.node_name for pod in serving.pods("search") if pod.spec.node_name not in (busy, spared)
    ]
    if not victims:
        pytest.skip("both replicas are on nodes that must live")
    try:
        cluster.node(victims[0]).kill()
        begun = time.monotonic()
        serving.wait(
            lambda: (
                victims[0] not in {pod.spec.node_name for pod in serving.pods("search")}
                and restored(serving, "search")
            ),
            SECONDS,
            "the replica has restored its index on another node",
        )
        print(f"served from the copy {time.monotonic() - begun:.1f} s after the loss of the node")
    finally:
        restore(cluster)
