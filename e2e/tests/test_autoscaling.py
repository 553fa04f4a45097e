"""Tests of the autoscaler of ServingJobs on real nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from pydantic import TypeAdapter

from convoy_controllers.autoscale.decide import decide
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


@pytest.fixture
def debug_log(cluster: Cluster) -> Iterator[None]:
    """Let the operator log each decision with its input."""
    _set_log_level(cluster, "DEBUG")
    yield
    _set_log_level(cluster, "INFO")


def _set_log_level(cluster: Cluster, level: str) -> None:
    cluster.kubectl("-n", NAMESPACE, "set", "env", OPERATOR, f"CONVOY_LOG_LEVEL={level}")
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", OPERATOR, "--timeout=120s", deadline=130)


def recorded(cluster: Cluster, job: str) -> list[Sync]:
    """Return the logged decisions about a job, the oldest first."""
    pods = cluster.get("-n", NAMESPACE, "pods", "-l", "app.kubernetes.io/component=operator")["items"]
    found = []
    for pod in pods:
        for line in cluster.kubectl("-n", NAMESPACE, "logs", pod["metadata"]["name"]).splitlines():
            if '"autoscaler decision"' in line and job in (entry := json.loads(line))["object"]:
                found.append(TypeAdapter(Sync).validate_python(entry["sync"]))
    return sorted(found, key=lambda sync: sync.at)


def scaled() -> dict[str, Any]:
    """Return a role whose number of replicas follows the requests per second."""
    target = {"type": "AverageValue", "averageValue": PER_REPLICA}
    metric = {"metric": {"name": "convoy_requests_per_second"}, "target": target}
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 30}}
    scaling = {"maxReplicas": MOST, "metrics": [{"type": "Pods", "pods": metric}], "behavior": behavior}
    return lm_role(scaling=scaling)


@pytest.mark.full
@pytest.mark.usefixtures("debug_log")
def test_a_step_of_load_adds_replicas_and_its_end_removes_them(
    cluster: Cluster, serving: ServingJobs
) -> None:
    serving.create("step", roles=[scaled()])
    assert serving.wait_rolled("step")["ready"] == "1/1"

    def ready(number: int) -> bool:
        return bool(serving.status("step").get("ready") == f"{number}/{number}")

    with load(serving.url("step"), RATE, 600, "--no-keep-alive") as running:
        serving.wait(lambda: ready(MOST), 180, f"{MOST} replicas")
        report = running.report()
    serving.wait(lambda: ready(1), 240, "one replica")
    assert report["ok"] == report["scheduled"] > 0, report

    status = serving.status("step")
    decisions = status["scaling"][0]["decisions"]
    assert (decisions[0]["toReplicas"], decisions[0]["reason"]) == (1, "BelowTarget")
    assert max(one["toReplicas"] for one in decisions) == MOST
    made = recorded(cluster, f"{serving.namespace}/step")
    numbers = [sync.decision.desired for sync in made if sync.decision.changes]
    assert numbers[-1] == 1 and max(numbers) == MOST, numbers
    for sync in made:
        assert decide(sync.scaling, sync.observed, sync.state, sync.at) == sync.decision
    for before, after in pairwise(made):
        assert after.state == before.decision.state, "a decision follows from the one before"
        assert after.observed.spec_replicas == before.decision.desired
    scaling = scaled()["scaling"]
    (theirs,) = results(ensure(Progress()), "controller", [live.case(scaling, made)])
    assert [one["replicas"] for one in theirs] == [sync.decision.desired for sync in made]
