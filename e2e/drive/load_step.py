"""Sends a step of load to an autoscaled ServingJob, and collects the decisions of the autoscaler."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from convoy_controllers.servingjob.scaling.memory import Sync
from e2e.cluster.cluster import Cluster
from e2e.cluster.progress import Progress
from e2e.drive.serving_jobs import ServingJobs, lm_role, load
from e2e.install import NAMESPACE
from e2e.oracle.hpa import live
from e2e.oracle.hpa.program import ensure, results

OPERATOR = "deployment/convoy-operator"
PER_REPLICA, MOST = 6, 4
"""Target of the metric, and maximum number of replicas."""
RATE = 22
"""Requests per second for which the metric asks for `MOST` replicas."""


@dataclass(frozen=True)
class LoadStep:
    """The outcome of a step of load."""

    made: list[Sync]
    """The decisions of Convoy's autoscaler with their inputs, the oldest first."""
    kubernetes: list[int]
    """The numbers of replicas that Kubernetes' own controller decides for the same inputs."""
    report: dict[str, Any]
    """Report of the load while the job had its most replicas."""

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of replicas after each change."""
        return [sync.decision.desired for sync in self.made if sync.decision.changes]


@contextmanager
def logged_decisions(cluster: Cluster) -> Iterator[None]:
    """Let the operator log each decision with its input while the block runs."""
    _set_log_level(cluster, "DEBUG")
    try:
        yield
    finally:
        _set_log_level(cluster, "INFO")


def _set_log_level(cluster: Cluster, level: str) -> None:
    cluster.kubectl("-n", NAMESPACE, "set", "env", OPERATOR, f"CONVOY_LOG_LEVEL={level}")
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", OPERATOR, "--timeout=120s", deadline=130)


def scaling_role() -> dict[str, Any]:
    """Return a role whose number of replicas follows the requests per second."""
    target = {"type": "AverageValue", "averageValue": PER_REPLICA}
    metric = {"metric": {"name": "convoy_requests_per_second"}, "target": target}
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 30}}
    scaling = {"maxReplicas": MOST, "metrics": [{"type": "Pods", "pods": metric}], "behavior": behavior}
    return lm_role(scaling=scaling)


def run_step(cluster: Cluster, serving: ServingJobs, name: str) -> LoadStep:
    """Take a job from one replica to `MOST` and back. Call this inside `logged_decisions`. The job stays."""
    serving.create(name, roles=[scaling_role()])
    serving.wait_rolled(name)

    def ready(number: int) -> bool:
        return bool(serving.status(name).get("ready") == f"{number}/{number}")

    with load(serving.url(name), RATE, 600, "--no-keep-alive") as running:
        serving.wait(lambda: ready(MOST), 180, f"{MOST} replicas")
        report = running.report()
    serving.wait(lambda: ready(1), 240, "one replica")
    made = _recorded(cluster, f"{serving.namespace}/{name}")
    case = live.case(scaling_role()["scaling"], made)
    (theirs,) = results(ensure(Progress()), "controller", [case])
    return LoadStep(made, [one["replicas"] for one in theirs], report)


def _recorded(cluster: Cluster, job: str) -> list[Sync]:
    """Return the logged decisions about a job, the oldest first."""
    pods = cluster.get("-n", NAMESPACE, "pods", "-l", "app.kubernetes.io/component=operator")["items"]
    found = []
    for pod in pods:
        for line in cluster.kubectl("-n", NAMESPACE, "logs", pod["metadata"]["name"]).splitlines():
            if '"autoscaler decision"' in line and job in (entry := json.loads(line))["object"]:
                found.append(TypeAdapter(Sync).validate_python(entry["sync"]))
    return sorted(found, key=lambda sync: sync.at)
