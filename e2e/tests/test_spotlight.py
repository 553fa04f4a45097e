"""The engine spotlight on spot nodes that a trace takes and returns, some of them without notice.

`CONVOY_SPOTLIGHT_SECONDS` is the length of the trace; the default is 10 minutes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from convoy_crds.meta import API_VERSION
from convoy_workloads.engines.spotlight.request_counts import from_metrics
from e2e.cluster.cluster import Cluster
from e2e.drive.jobs import Jobs
from e2e.drive.spot_nodes import Act, LocalProvider, following, label_node
from e2e.drive.spotlight_job import (
    LEASE_SECONDS,
    ON_DEMAND,
    SPOT,
    TICK_SECONDS,
    check_requests,
    create,
    metric,
    metrics,
    pool_spec,
    spend,
    trace,
)

pytestmark = pytest.mark.full
SECONDS = float(os.environ.get("CONVOY_SPOTLIGHT_SECONDS", "600"))
TARGET = 0.2
"""Held-out reward, which is 0.05 before the training."""
STEPS = 40
ITERATION_SECONDS = 10.0
"""Bound of the time of an iteration on the trainer alone."""


@pytest.fixture
def spot_nodes(cluster: Cluster) -> Iterator[list[str]]:
    """Label the first node as on-demand and two others as spot. Yield the names of the spot nodes."""
    first, *others = sorted(node.name for node in cluster.nodes)
    if len(others) < 2:
        pytest.skip("needs three nodes: set CONVOY_E2E_NODES=3")
    chosen = others[:2]
    for name, labels in [(first, ON_DEMAND), *((one, SPOT) for one in chosen)]:
        label_node(cluster, name, labels)
    try:
        yield chosen
    finally:
        for name in (first, *chosen):
            cluster.kubectl("label", "node", name, "convoy.dev/capacity-")


@pytest.fixture
def pool(cluster: Cluster, jobs: Jobs) -> Iterator[str]:
    """Create a SpotPool of the spot nodes. Yield its name."""
    spec = pool_spec(jobs.namespace)
    body = {"apiVersion": API_VERSION, "kind": "SpotPool", "metadata": {"name": "spotlight"}, "spec": spec}
    cluster.kubectl("apply", "-f", "-", text=json.dumps(body))
    yield "spotlight"
    cluster.kubectl("delete", "spotpool", "spotlight")


def check_result(result: dict[str, Any], iterations: int) -> None:
    """Check the requests and the cost of a job that has ended."""
    check_requests(iterations, result["trainedSamples"], result["requests"])
    assert abs(result["residual"]) < 1e-6


def test_nodes_that_come_and_go_lose_no_request_and_never_restart_the_trainer(
    cluster: Cluster, jobs: Jobs, spot_nodes: list[str], pool: str
) -> None:
    name = "spotlight"
    create(jobs, name, pool, steps=100_000)
    jobs.wait(lambda: jobs.status(name).get("independent") == "2/2", 120, "both spot pods run")
    jobs.wait(lambda: metric(jobs, name, "explored_seeds") > 0, 120, "spot workers explore")
    first, began = jobs.status(name), metric(jobs, name, "held_out_reward")
    paid = spend(cluster, pool)
    with following(trace(SECONDS), spot_nodes, LocalProvider(cluster, SPOT)) as account:
        end = time.monotonic() + SECONDS
        jobs.wait(lambda: time.monotonic() > end, SECONDS + 10, "the trace has ended")
        paid = spend(cluster, pool) - paid
    assert cluster.get("spotpools", pool)["status"]["cost"]["residual"] <= TICK_SECONDS / 3600
    # The price of a node-hour is 1. A node counts from the moment at which the pool sees it.
    assert abs(paid * 3600 - account.node_seconds) <= 0.1 * account.node_seconds
    jobs.wait(lambda: metric(jobs, name, "held_out_reward") >= TARGET, 600, f"the reward reaches {TARGET}")
    last = jobs.status(name)
    assert account.counts[Act.LOSE] >= _losses() and account.counts[Act.NOTICE] >= 1
    assert last["incarnation"] == first["incarnation"]
    assert last["restarts"]["total"] == first["restarts"]["total"]
    assert last["progress"]["step"] > first["progress"]["step"] + SECONDS / 30
    jobs.wait_step(name, last["progress"]["step"] + 3, 120)
    # Status and metrics are of one moment, and so must the checks be.
    progress = jobs.status(name)["progress"]
    values = metrics(progress)
    check_requests(progress["step"], int(values["trained_samples"]), from_metrics(values))
    names = ("held_out_reward", "explored_seeds", "idle_spot_ratio", "requests_consumed", "requests_resumed")
    figures = ", ".join(f"{one} {metric(jobs, name, one):.3f}" for one in names)
    print(f"{account.counts}; {paid * 3600:.0f} of {account.node_seconds:.0f} node-seconds are billed")
    print(f"step {last['progress']['step']}; reward at the start {began:.3f}; {figures}")


def _losses() -> int:
    return sum(len(one.vanished) for one in trace(SECONDS).changes())


def test_a_job_without_spot_nodes_progresses_and_counts_every_request(
    cluster: Cluster, jobs: Jobs, spot_nodes: list[str], pool: str
) -> None:
    name = "spotless"
    for node in spot_nodes:
        cluster.kubectl("label", "node", node, "convoy.dev/capacity=none", "--overwrite")
    create(jobs, name, pool, steps=6, live={"pace": 0})
    jobs.wait_phase(name, "Succeeded", 180)
    check_result(jobs.status(name)["result"], 6)


def test_all_spot_nodes_lost_at_once_stall_the_job_no_longer_than_a_lease(
    cluster: Cluster, jobs: Jobs, spot_nodes: list[str], pool: str
) -> None:
    name = "spotloss"
    create(jobs, name, pool, steps=STEPS)
    jobs.wait(lambda: metric(jobs, name, "explored_seeds") > 0, 180, "spot workers explore")
    step, incarnation = jobs.status(name)["progress"]["step"], jobs.status(name)["incarnation"]
    provider = LocalProvider(cluster, SPOT)
    try:
        for node in spot_nodes:
            provider.lose(node)
        # The step that runs waits for lost leases at most. The next one has the trainer alone.
        jobs.wait_step(name, step + 2, LEASE_SECONDS + 2 * ITERATION_SECONDS)
        jobs.wait_phase(name, "Succeeded", 600)
    finally:
        for node in spot_nodes:
            provider.give(node)
    status = jobs.status(name)
    assert status["incarnation"] == incarnation
    check_result(status["result"], STEPS)
