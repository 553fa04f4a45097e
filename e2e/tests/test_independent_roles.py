"""Tests of Independent roles: their pods are killed, complete and are drained, and the training runs on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster import files
from e2e.cluster.cluster import Cluster
from e2e.drive.job_specs import ENDLESS, one_role, own_container
from e2e.drive.jobs import Jobs
from e2e.drive.perturbations import kill_rank

SCRIPT = "independent.py"
GRACE_SECONDS = 10


@pytest.fixture
def script(jobs: Jobs) -> Iterator[str]:
    """Yield the name of a ConfigMap with the program of examples/independent.yaml."""
    body = {"metadata": {"name": "independent"}, "data": {SCRIPT: _example()}}
    jobs.core.create_namespaced_config_map(jobs.namespace, body)
    yield "independent"
    jobs.core.delete_namespaced_config_map("independent", jobs.namespace)


def _example() -> str:
    return (files.CHECKOUT / "examples" / SCRIPT).read_text()


def independent(script: str, name: str, replicas: int, **variables: str) -> dict[str, Any]:
    """Return an Independent role that runs the example's program."""
    container = own_container(
        "python",
        f"/scripts/{SCRIPT}",
        env=[{"name": key, "value": value} for key, value in variables.items()],
        volumeMounts=[{"name": "scripts", "mountPath": "/scripts", "readOnly": True}],
    )
    spec = {
        "containers": [container],
        "volumes": [{"name": "scripts", "configMap": {"name": script}}],
        "terminationGracePeriodSeconds": GRACE_SECONDS,
    }
    return {"name": name, "replicas": replicas, "membership": "Independent", "template": {"spec": spec}}


def counts(status: dict[str, Any], role: str) -> dict[str, int]:
    """Return the counts of an Independent role; empty before the first."""
    found = (one for one in status.get("roles", ()) if one["name"] == role)
    return next((one.get("independent") or {} for one in found), {})


def group(jobs: Jobs, name: str) -> tuple[Any, ...]:
    """Return the facts about the process group that no Independent pod may change."""
    status = jobs.status(name)
    trainers = [pod.metadata.uid for pod in jobs.pods(name) if "-worker-" in pod.metadata.name]
    return status["incarnation"], status["restarts"]["total"], status["ready"], trainers


def test_losses_and_failures_of_independent_pods_do_not_touch_the_training(
    cluster: Cluster, jobs: Jobs, script: str
) -> None:
    name, pod = "harvest", "harvest-rollout-0"
    roles = [
        {"name": "worker", "replicas": 1},
        independent(script, "rollout", 1),
        independent(script, "prepare", 1, PIECES="1"),
    ]
    jobs.create(name, engine={"name": "gpt", "params": ENDLESS}, roles=roles)
    jobs.wait_phase(name, "Running", 60)
    jobs.wait(lambda: jobs.status(name).get("independent") == "1/2", 40, "the rollout pod runs")
    jobs.wait(lambda: counts(jobs.status(name), "prepare").get("completed") == 1, 30, "prepare completes")
    before = group(jobs, name)
    trainer = next(one for one in jobs.pods(name) if "-worker-" in one.metadata.name)
    line = f"incarnation {before[0]} of the group is at {trainer.status.pod_ip}"
    jobs.wait(lambda: line in jobs.log(pod), 20, "the program knows the address of rank 0")

    uid = jobs.core.read_namespaced_pod(pod, jobs.namespace).metadata.uid
    jobs.core.delete_namespaced_pod(pod, jobs.namespace, grace_period_seconds=0)
    jobs.wait(lambda: counts(jobs.status(name), "rollout").get("preemptions") == 1, 20, "a preemption")
    jobs.wait(lambda: jobs.status(name).get("independent") == "1/2", 40, "the pod is replaced")
    again = jobs.core.read_namespaced_pod(pod, jobs.namespace)
    assert again.metadata.uid != uid

    kill_rank(cluster, again.spec.node_name, again.metadata.uid, 0)
    jobs.wait(lambda: counts(jobs.status(name), "rollout").get("restarts") == 1, 20, "a restart")
    jobs.wait(lambda: jobs.status(name).get("independent") == "1/2", 30, "the program runs again")
    assert jobs.core.read_namespaced_pod(pod, jobs.namespace).metadata.uid == again.metadata.uid, "in place"

    assert group(jobs, name) == before
    step = jobs.status(name)["progress"]["step"]
    jobs.wait_step(name, step + 20, 30)
    assert counts(jobs.status(name), "prepare")["completed"] == 1, "it is not started again"


def test_independent_pods_are_drained_when_the_training_ends(jobs: Jobs, script: str) -> None:
    name = "finite"
    training = one_role(own_container("python", "-c", "import time; time.sleep(20)"))
    jobs.create(name, engine=None, roles=[*training, independent(script, "rollout", 1)])
    jobs.wait(lambda: jobs.status(name).get("independent") == "1/1", 60, "the rollout pod runs")
    jobs.wait_phase(name, "Succeeded", 60)
    left = {"finite-worker-0"}
    jobs.wait(
        lambda: {pod.metadata.name for pod in jobs.pods(name)} == left, GRACE_SECONDS + 20, "rollout drained"
    )
