"""Measures ServingJobs on real nodes: rollouts under load, a killed rank, a dead node."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.serving.dead_node import dead_node
from e2e.cluster.cluster import Cluster
from e2e.drive.job_progress import watermark
from e2e.drive.job_specs import ENDLESS
from e2e.drive.jobs import Jobs
from e2e.drive.perturbations import kill_rank
from e2e.drive.s3_server import checkpoint_store, s3_server
from e2e.drive.serving_jobs import ServingJobs, load, seconds_until_served, seeded

REQUESTS = 10_000
RATE = 60.0
"""Requests per second of the load on a rollout."""
_ROLLOUT = {"drainSeconds": 5}


def rolling(jobs: ServingJobs, found: Figures, title: str, *arguments: str) -> None:
    """Roll a job of two replicas from revision to revision while REQUESTS requests arrive. `arguments`: those
    of `convoy load`. With kept connections, most requests go to one replica until it ends. With a connection
    for each request, the proxy chooses a replica for each, so a wrong endpoint shows at once.
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
    add_load(jobs, found, title, report, rolls)


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
    add_load(jobs, found, "model roll-forward under load", report, len(steps) - 1)


def add_load(jobs: ServingJobs, found: Figures, title: str, report: dict[str, Any], rolls: int) -> None:
    """Add the rows of a load on a job that rolled `rolls` times, and report the causes of failures."""
    for cause in report["causes"]:
        jobs.cluster.progress.report(f"{title}: {cause}")
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
