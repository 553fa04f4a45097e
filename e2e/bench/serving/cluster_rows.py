"""Measures ServingJobs on real nodes: rollouts under load, a killed rank, a dead node."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from convoy_workloads.bench.figures import Figures, Metric
from e2e.cluster.cluster import Cluster
from e2e.drive.cluster_state import leader, restore
from e2e.drive.faults import kill_rank
from e2e.drive.job_progress import watermark
from e2e.drive.job_specs import ENDLESS
from e2e.drive.jobs import Jobs
from e2e.drive.s3_server import checkpoint_store, s3_server
from e2e.drive.serving_jobs import ServingJobs, apart, is_ready, load, seconds_until_served, seeded

REQUESTS = 10_000
RATE = 60.0
"""Requests per second of the load on a rollout."""
UNREADY_LIMIT = 120.0
_ROLLOUT = {"drainSeconds": 5}


def rolling(jobs: ServingJobs, found: Figures, title: str, *arguments: str) -> None:
    """Roll a job of two replicas from revision to revision while REQUESTS requests arrive. `arguments`: those
    of `convoy load`.
    """
    requests = REQUESTS
    jobs.create("rolling", replicas=2, rollout=_ROLLOUT)
    jobs.wait_rolled("rolling")
    rolls = 0
    with load(jobs.url("rolling"), RATE, requests / RATE, *arguments) as running:
        ends = time.monotonic() + requests / RATE
        while time.monotonic() < ends:
            rolls += 1
            jobs.patch("rolling", roles=[seeded(1 + rolls)])
            jobs.wait_rolled("rolling")
        report = running.wait(120)
    jobs.delete("rolling")
    add_load(found, title, report, rolls)


def model_roll(cluster: Cluster, jobs: ServingJobs, found: Figures, requests: int = REQUESTS) -> None:
    """Train a job that saves to an S3 server, and let two replicas follow its newest generation while
    `requests` requests arrive.
    """
    training = Jobs.of(cluster, jobs.namespace, single_threaded=True)
    with s3_server(cluster) as server, checkpoint_store(cluster, server) as store:
        checkpoint = {"interval": "5s", "tiers": {"local": {}, "remote": {"store": store, "every": "10s"}}}
        engine = {"name": "gpt", "params": ENDLESS}
        roles = [{"name": "worker", "replicas": 1}]
        training.create("writer", engine=engine, roles=roles, checkpoint=checkpoint)
        training.wait(
            lambda: watermark(training.status("writer"), "remote"), 120, "a generation in the store"
        )
        follow = {"job": "writer", "store": store, "follow": True, "minInterval": "10s"}
        jobs.create("forward", replicas=2, rollout=_ROLLOUT, model={"checkpoint": follow})
        jobs.wait(lambda: jobs.status("forward").get("ready") == "2/2", 120, "two replicas serve")
        steps: set[int] = set()
        with load(jobs.url("forward"), RATE, requests / RATE) as running:
            ends = time.monotonic() + requests / RATE
            while time.monotonic() < ends:
                status = jobs.status("forward")
                if status.get("reason") == "RolloutComplete":
                    steps.add(status["model"]["step"])
                time.sleep(0.5)
            report = running.wait(120)
        jobs.delete("forward")
        training.delete("writer")
    add_load(found, "model roll-forward under load", report, len(steps) - 1)


def add_load(found: Figures, title: str, report: dict[str, Any], rolls: int) -> None:
    """Add the rows of a load on a job that rolled `rolls` times."""
    found.add(Metric(f"{title}: requests", "requests", REQUESTS, higher_is_better=True), report["scheduled"])
    found.add(Metric(f"{title}: rollouts during the load", "rollouts"), rolls)
    not_ok = report["scheduled"] - report["ok"]
    found.add(Metric(f"{title}: requests without a complete response", "requests", 0), not_ok)
    found.add(Metric(f"{title}: p99 from the scheduled arrival", "ms"), report["totalMs"]["p99"])


def killed_rank(cluster: Cluster, jobs: ServingJobs, found: Figures, repeats: int) -> None:
    """Kill the rank of a single replica, and measure the time to the next complete response."""
    replaced = 0
    # Each repeat has a job of its own, because faults that repeat are restarted with a back-off.
    for name in (f"killed-{number}" for number in range(repeats)):
        jobs.create(name, replicas=1)
        jobs.wait_rolled(name)
        (pod,) = jobs.pods(name)
        at = time.monotonic()
        kill_rank(cluster, pod.spec.node_name, pod.metadata.uid, 0)
        seconds = seconds_until_served(jobs.url(name), at, 60)
        cluster.progress.report(f"killed rank: served again after {seconds:.2f} s")
        found.add(Metric("kill -9 of a replica's rank: served again in place", "seconds", 1.5), seconds)
        replaced += [one.metadata.uid for one in jobs.pods(name)] != [pod.metadata.uid]
        jobs.delete(name)
    found.add(Metric("kill -9 of a replica's rank: pods that were replaced", "pods", 0), replaced)


@dataclass
class _Watch:
    """Records the times after a fault at which something was seen for the first time."""

    at: float
    seconds: dict[str, float]

    def see(self, name: str, holds: bool) -> bool:
        """Record the time at which something holds for the first time. Return True once it is known."""
        if holds and name not in self.seconds:
            self.seconds[name] = time.monotonic() - self.at
        return name in self.seconds


def dead_node(cluster: Cluster, jobs: ServingJobs, found: Figures) -> None:
    """Kill the node of a replica. Measure when its pods stop being ready, beside a pod of a Deployment on the
    same node, and when the last request failed.
    """
    jobs.create("dead", replicas=2, roles=[apart("dead")])
    jobs.wait_rolled("dead")
    spared = {leader(cluster)[1], cluster.nodes[0].name}
    victim = next(pod.spec.node_name for pod in jobs.pods("dead") if pod.spec.node_name not in spared)
    _plain(cluster, jobs, victim)
    before = {pod.metadata.uid for pod in jobs.pods("dead")}
    try:
        with load(jobs.url("dead"), 20, 600, "--timeout=5", "--no-keep-alive") as running:
            begun = time.monotonic()
            settle = begun + 5
            jobs.wait(lambda: time.monotonic() > settle, 10, "requests arrive")
            at = time.monotonic()
            threading.Thread(target=cluster.node(victim).kill, daemon=True).start()
            watch = _Watch(at, {})

            def over() -> bool:
                pods = jobs.pods("dead")
                victims = [pod for pod in pods if pod.spec.node_name == victim and pod.metadata.uid in before]
                unready = watch.see("ours", not any(map(is_ready, victims)))
                restored = watch.see("restored", unready and sum(map(is_ready, pods)) >= 2)
                plain = watch.see("plain", not any(map(is_ready, _plain_pods(jobs, victim))))
                return restored and plain

            jobs.wait(over, UNREADY_LIMIT, "the pods are not ready, and two replicas serve")
            report = running.report()
    finally:
        restore(cluster)
    title = "death of a replica's node"
    own = f"{title}: a Deployment's pod is not ready (the cluster's own time)"
    found.add(Metric(own, "seconds"), watch.seconds["plain"])
    found.add(Metric(f"{title}: its pods are not ready", "seconds", 10, baseline=own), watch.seconds["ours"])
    found.add(Metric(f"{title}: as many replicas as before serve", "seconds"), watch.seconds["restored"])
    _add_failures(found, title, report, at - begun)
    jobs.delete("dead")
    jobs.cluster.kubectl("-n", jobs.namespace, "delete", "deployment", "plain", "--wait=false")


def _add_failures(found: Figures, title: str, report: dict[str, Any], at: float) -> None:
    """Add the rows about requests that failed. `at`: time of the fault, in seconds from the load's start."""
    last = max((one["lastAtSeconds"] - at for one in report["causes"]), default=0.0)
    found.add(Metric(f"{title}: the last request that failed had arrived after", "seconds", 15), last)
    failed = report["scheduled"] - report["ok"]
    found.add(Metric(f"{title}: requests without a complete response", "requests"), failed)
    known = sum(report[kind] for kind in ("ok", "shed", "failed", "lost", "unsent"))
    found.add(Metric(f"{title}: requests without any outcome", "requests", 0), report["scheduled"] - known)


def _plain(cluster: Cluster, jobs: ServingJobs, node: str) -> None:
    """Run a pod of a Deployment on a node, and wait until it is ready."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "plain",
        "image": "convoy/torch:dev",
        "command": ["sleep", "3600"],
        "imagePullPolicy": "Never",
        "securityContext": security,
    }
    labels = {"app": "plain"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "nodeName": node}}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "plain", "namespace": jobs.namespace},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    cluster.kubectl("apply", "-f", "-", text=json.dumps(body))
    jobs.wait(lambda: any(is_ready(pod) for pod in _plain_pods(jobs, node)), 60, "the plain pod is ready")


def _plain_pods(jobs: ServingJobs, node: str) -> list[Any]:
    found = jobs.core.list_namespaced_pod(jobs.namespace, label_selector="app=plain").items
    return [pod for pod in found if pod.spec.node_name == node]


ROWS: dict[str, Callable[[Cluster, ServingJobs, Figures, int], None]] = {
    "rolling": lambda _cluster, jobs, found, _repeats: rolling(jobs, found, "rolling update under load"),
    "rolling-spread": lambda _cluster, jobs, found, _repeats: rolling(
        jobs, found, "rolling update under load, a connection for each request", "--no-keep-alive"
    ),
    "model-roll": lambda cluster, jobs, found, _repeats: model_roll(cluster, jobs, found),
    "killed-rank": killed_rank,
    "dead-node": lambda cluster, jobs, found, _repeats: dead_node(cluster, jobs, found),
}
"""Measurements on real nodes, by name."""
