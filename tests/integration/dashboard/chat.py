"""The ServingJob `chat` of an invented cluster: a rollout that has halted, and one replica that failed."""

from __future__ import annotations

from typing import Any

from tests.integration.dashboard import llama
from tests.integration.dashboard.conftest import Cluster
from tests.integration.dashboard.machines import condition
from tests.integration.dashboard.times import at

NAME = "chat"
HALTED = (
    "the rollout of revision chat-7f is halted: its first replica failed. 2 older replicas keep serving. "
    "rank 0 exited with code 3. Correct the spec, or run: convoy rollout undo chat"
)


def create(cluster: Cluster, points: int) -> None:
    """Create the job, its pods and its traffic of the last minutes."""
    body = {
        "kind": "ServingJob",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {
            "roles": [{"name": "server", "engine": {"name": "llama"}}],
            "replicas": 3,
            "model": {"checkpoint": {"job": llama.NAME, "store": "s3-main", "follow": True}},
            "slo": {"p95Ms": 400},
        },
        "status": _status(),
    }
    made = cluster.make("servingjobs", body)
    for number, (node, revision, ready) in enumerate(
        (("node-01", "chat-5c", True), ("node-02", "chat-5c", True), ("node-06", "chat-7f", False))
    ):
        _pod(cluster, made["metadata"]["uid"], number, node, revision, ready=ready)
    for number in range(min(points, 20)):
        traffic = {
            "p95Ms": 300 + 10 * (number % 7),
            "ttftMs": 80 + number % 5,
            "requestsPerSecond": 40 + number,
            "queue": number % 4,
            "inFlight": 8,
        }
        cluster.status("servingjobs", NAME, {"traffic": traffic}, "default")


def _status() -> dict[str, Any]:
    group = {"role": "server", "incarnation": 4, "membership": "m"}
    failed = {"failed": at(minutes=6), "reason": "RankFailed", "error": "rank 0 exited with code 3"}
    return {
        "observedGeneration": 1,
        "reason": "RevisionFailed",
        "message": HALTED,
        "ready": "2/3",
        "replicas": 3,
        "currentRevision": "chat-5c",
        "updateRevision": "chat-7f",
        "conditions": [
            condition("Available", "True", "Serving", "2 of 3 replicas are ready"),
            condition("Progressing", "False", "RevisionFailed", HALTED, minutes=6),
            condition("Degraded", "True", "ReplicaFailed", "replica server-2 failed", minutes=6),
            condition("SLOMet", "True", "ObjectivesMet", "spec.slo.p95Ms met"),
        ],
        "revisions": [{"name": "chat-7f", "number": 2}, {"name": "chat-5c", "number": 1}],
        "model": {"job": llama.NAME, "uid": "u", "store": "s3-main", "step": 41_000, "since": at(hours=2)},
        "internal": {
            "incarnation": 4,
            "groups": [
                {**group, "number": 0, "revision": "chat-5c"},
                {**group, "number": 1, "revision": "chat-5c"},
                {**group, "number": 2, "revision": "chat-7f", "times": [at(minutes=7)], **failed},
            ],
        },
    }


def _pod(cluster: Cluster, uid: str, number: int, node: str, revision: str, *, ready: bool) -> None:
    name = f"{NAME}-server-{number}-0"
    labels = {"job": NAME, "kind": "ServingJob", "role": "server", "group": str(number), "index": "0"}
    labels |= {"revision": revision}
    owner = {"apiVersion": "convoy.dev/v1alpha1", "kind": "ServingJob", "name": NAME, "uid": uid}
    body = {
        "metadata": {
            "name": name,
            "labels": {f"convoy.dev/{key}": value for key, value in labels.items()},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "server", "image": "i"}],
            "automountServiceAccountToken": False,
        },
    }
    cluster.plane.request("POST", "/api/v1/namespaces/default/pods", body)
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": at(minutes=30)}]
    status = {"phase": "Running", "conditions": conditions}
    path = f"/api/v1/namespaces/default/pods/{name}/status"
    cluster.plane.request("PATCH", path, {"status": status}, "application/merge-patch+json")
