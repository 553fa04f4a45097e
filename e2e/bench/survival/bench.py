"""Measures the seconds from each fault on real nodes to each stage of the job's recovery."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from kubernetes import client

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.survival.surroundings import everything_on
from e2e.cluster.cluster import Cluster
from e2e.cluster.progress import Progress
from e2e.drive.cluster_state import leader, restore
from e2e.drive.fault_injection import JobUnderTest, training_job
from e2e.drive.job_specs import on_separate_nodes
from e2e.drive.jobs import Jobs, restricted_namespace
from e2e.drive.recovery import Recovery
from e2e.drive.torchrun_job import own_script
from e2e.install import bring_up

NAME = "survival"
COMMAND = "make bench-survival"
NODES = 3
STOCK_SECONDS = 500.0

STAGES = ("decided", "deleted", "created", "scheduled", "running", "formed", "stepped")
"""Stages of a recovery. Each is an attribute of `e2e.drive.recovery.Recovery`, in seconds after the fault."""


@dataclass(frozen=True)
class Scenario:
    """A fault, the job that it hits, and the target for the recovery."""

    title: str
    target: float | None
    """Maximum seconds from the fault to the end of the next step; None for no target."""
    inject: Callable[[JobUnderTest], Recovery]
    own_script: bool = False
    """True if the job runs the unmodified script of examples/torchrun.yaml.

    False if it runs the engine with checkpoints in memory.
    """
    elastic: bool = False
    excludes_restore: bool = False
    """True if the target does not include the time to read the checkpoint."""


def _kill_node(job: JobUnderTest) -> Recovery:
    """Kill the node of a worker, but not the node of the leading operator. `_kill_leader` kills that one."""
    node = leader(job.cluster)[1]
    pods = list(enumerate(job.pods))
    return job.kill_node(next(number for number, pod in reversed(pods) if pod.spec.node_name != node))


def _kill_leader(job: JobUnderTest) -> Recovery:
    """Kill the node that runs both the leading operator and a worker."""
    node = leader(job.cluster)[1]
    index = next(number for number, pod in enumerate(job.pods) if pod.spec.node_name == node)
    return job.kill_node(index, 120)


SCENARIOS = {
    "rank": Scenario(
        "SIGKILL of a rank, state restored", 1.0, lambda job: job.kill_rank(), excludes_restore=True
    ),
    "rank-script": Scenario(
        "SIGKILL of a rank, unmodified script", 1.0, lambda job: job.kill_rank(), own_script=True
    ),
    "pod": Scenario("a pod is deleted", 6.0, lambda job: job.delete_pod()),
    "node": Scenario("kill -9 of a node, Commit", 10.0, _kill_node),
    "node-elastic": Scenario("kill -9 of a node, the job may shrink", 7.0, _kill_node, elastic=True),
    "node-strict": Scenario("kill -9 of a node, Strict", 30.0, _kill_node, own_script=True),
    "node-leader": Scenario("kill -9 of the node that the leader is on too, Commit", 20.0, _kill_leader),
}


def bench(only: list[str], repeats: int, stock: bool, found: Figures) -> None:
    """Create a cluster, inject every fault `repeats` times, and remove the cluster."""
    cluster = bring_up(NAME, NODES, Progress())
    try:
        jobs = Jobs.of(cluster, restricted_namespace(cluster, NAME))
        with everything_on(cluster, jobs.namespace):
            for repeat in range(repeats):
                for name in only:
                    recovery = _measure(cluster, jobs, f"{name}-{repeat}", SCENARIOS[name])
                    cluster.progress.report(f"{name} {repeat + 1}/{repeats}: {recovery}")
                    _record(found, SCENARIOS[name], recovery)
        if stock:
            title = "kill -9 of a node, a pod of a plain Kubernetes Job runs elsewhere"
            found.add(Metric(title, "seconds"), _stock(cluster, jobs))
    finally:
        cluster.down()


def _measure(cluster: Cluster, jobs: Jobs, name: str, scenario: Scenario) -> Recovery:
    with ExitStack() as stack:
        spec = stack.enter_context(own_script(jobs, name)) if scenario.own_script else {}
        if scenario.elastic:
            role = {
                "name": "worker",
                "replicas": NODES,
                "minReplicas": 2,
                "template": on_separate_nodes(name),
            }
            spec["roles"] = [role]
        elif scenario.inject is _kill_leader:
            role = {
                "name": "worker",
                "replicas": 2,
                "template": on_separate_nodes(name, beside=leader(cluster)[1]),
            }
            spec["roles"] = [role]
        job = stack.enter_context(training_job(cluster, jobs, name, **spec))
        recovery = scenario.inject(job)
        return replace(recovery, restored=_restore_seconds(jobs.log(job.pods[0].metadata.name)))


def _restore_seconds(log: str) -> float | None:
    """Return the seconds that rank 0 needed to read its checkpoint, as its log says; None if it read none."""
    seconds: list[str] = re.findall(r"continues after step .* restored in ([0-9.]+) s", log)
    return float(seconds[-1]) if seconds else None


def _record(found: Figures, scenario: Scenario, recovery: Recovery) -> None:
    for stage in STAGES:
        value = getattr(recovery, stage)
        if value is not None:
            target = scenario.target if stage == "stepped" and not scenario.excludes_restore else None
            found.add(Metric(f"{scenario.title}: {stage}", "seconds", target), value)
    if recovery.restored is not None:
        found.add(Metric(f"{scenario.title}: of it, reading the checkpoint", "seconds"), recovery.restored)
        if scenario.excludes_restore:
            title = f"{scenario.title}: stepped, but for reading the checkpoint"
            found.add(Metric(title, "seconds", scenario.target), recovery.stepped - recovery.restored)


def _stock(cluster: Cluster, jobs: Jobs) -> float | None:
    """Return the seconds that Kubernetes without Convoy needs to replace a Job's pod after its node has
    died.

    None if no replacement runs within STOCK_SECONDS.
    """
    container = {
        "name": "sleep",
        "image": "convoy/torch:dev",
        "command": ["python3", "-c", "import time; time.sleep(86400)"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "stock"}}
    body: Any = {**manifest, "spec": {"template": {"spec": pod}, "backoffLimit": 10}}

    def running(other_than: str = "") -> Any:
        listed = jobs.core.list_namespaced_pod(jobs.namespace, label_selector="job-name=stock").items
        return next((p for p in listed if p.status.phase == "Running" and p.metadata.uid != other_than), None)

    client.BatchV1Api(jobs.core.api_client).create_namespaced_job(jobs.namespace, body)
    first = jobs.wait(running, 60, "the Job's pod runs")
    try:
        cluster.node(first.spec.node_name).kill()
        died = time.monotonic()
        jobs.wait(
            lambda: running(first.metadata.uid), STOCK_SECONDS, "Kubernetes runs a replacement of the pod"
        )
        return time.monotonic() - died
    except AssertionError:
        return None
    finally:
        restore(cluster)
