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
from convoy_workloads.spot.trace import Change, SpotTrace
from e2e.cluster.cluster import Cluster
from e2e.drive.job_specs import single_threaded
from e2e.drive.jobs import Jobs
from e2e.drive.spot_nodes import Act, LocalProvider, following

pytestmark = pytest.mark.full
SECONDS = float(os.environ.get("CONVOY_SPOTLIGHT_SECONDS", "600"))
SPOT, ON_DEMAND = {"convoy.dev/capacity": "spot"}, {"convoy.dev/capacity": "on-demand"}
PERIOD = 60.0
NOTICE_SECONDS = 15.0
LEASE_SECONDS = 10
PARAMS = {
    "workers": "ray",
    # A sample of 8 steps lasts 0.2 s, and the training of 32 samples 4.8 s.
    "live": {"pace": 0.1, "capacity": 4},
    "cluster": {"sampleSeconds": 2.0, "trainSeconds": 6.0, "onDemand": 4},
    "problem": {"kind": "ring", "prompts": 16, "pretrainingSteps": 500},
    "promptsPerIteration": 4,
    "groupSize": 8,
    "maxSeeds": 24,
    "leaseSeconds": LEASE_SECONDS,
    "phaseSeconds": 120,
}


def trace(seconds: float) -> SpotTrace:
    """Return a trace of two nodes: one is lost with notice, then the other one without, then both at once."""
    one, two = ("spot-0",), ("spot-1",)
    events = [Change(0.0, (*one, *two), (), 0.0)]
    at = PERIOD
    while at + PERIOD < seconds:
        lost, lead = [(one, NOTICE_SECONDS), (two, 0.0), ((*one, *two), 0.0)][int(at / PERIOD) % 3]
        events += [Change(at, (), lost, lead), Change(at + PERIOD / 3, lost, (), 0.0)]
        at += PERIOD
    return SpotTrace(seconds, 2, tuple(events))


@pytest.fixture
def spot_nodes(cluster: Cluster) -> Iterator[list[str]]:
    """Label the first node as on-demand and two others as spot. Yield the names of the spot nodes."""
    first, *others = sorted(node.name for node in cluster.nodes)
    if len(others) < 2:
        pytest.skip("needs three nodes: set CONVOY_E2E_NODES=3")
    chosen = others[:2]
    for name, labels in [(first, ON_DEMAND), *((one, SPOT) for one in chosen)]:
        words = [f"{key}={value}" for key, value in labels.items()]
        cluster.kubectl("label", "node", name, *words, "--overwrite")
    try:
        yield chosen
    finally:
        for name in (first, *chosen):
            cluster.kubectl("label", "node", name, "convoy.dev/capacity-")


@pytest.fixture
def pool(cluster: Cluster, jobs: Jobs) -> Iterator[str]:
    """Create a SpotPool of the spot nodes. Yield its name."""
    spec = {
        "selector": {"matchLabels": SPOT},
        "maxNodes": 2,
        "allowedNamespaces": [jobs.namespace],
        "price": {"onDemandPerHour": 1.0, "spot": {"perHour": 0.27}},
    }
    body = {"apiVersion": API_VERSION, "kind": "SpotPool", "metadata": {"name": "spotlight"}, "spec": spec}
    cluster.kubectl("apply", "-f", "-", text=json.dumps(body))
    yield "spotlight"
    cluster.kubectl("delete", "spotpool", "spotlight")


def roles(pool: str) -> list[dict[str, Any]]:
    """Return the trainer's role on the on-demand node, and the workers' role on the pool."""
    trainer = {"name": "trainer", "replicas": 1, "template": {"spec": {"nodeSelector": ON_DEMAND}}}
    spot = {"name": "spot", "replicas": 2, "membership": "Independent", "spotPool": pool}
    return [single_threaded(trainer), single_threaded(spot)]


def create(jobs: Jobs, name: str, pool: str, **params: Any) -> None:
    jobs.create(name, engine={"name": "spotlight", "params": {**PARAMS, **params}}, roles=roles(pool))
    jobs.wait_phase(name, "Running", 120)


def metric(jobs: Jobs, name: str, metric: str) -> float:
    """Return the newest value of a metric of the engine; 0 before the first one."""
    progress = jobs.status(name).get("progress", {})
    found = (one["value"] for one in progress.get("metrics", ()) if one["name"] == metric)
    return float(next(found, 0.0))


def check_requests(result: dict[str, Any]) -> None:
    """Check that no request was lost, and that none was counted twice."""
    counts = result["requests"]
    ended = sum(counts[name] for name in ("consumed", "expired", "superseded"))
    assert counts["planned"] == counts["open"] + ended, counts


def test_nodes_that_come_and_go_lose_no_request_and_never_restart_the_trainer(
    cluster: Cluster, jobs: Jobs, spot_nodes: list[str], pool: str
) -> None:
    name = "spotlight"
    create(jobs, name, pool, steps=100_000)
    jobs.wait(lambda: jobs.status(name).get("independent") == "2/2", 120, "both spot pods run")
    jobs.wait(lambda: metric(jobs, name, "explored_seeds") > 0, 120, "spot workers explore")
    first, began = jobs.status(name), metric(jobs, name, "held_out_reward")
    with following(trace(SECONDS), spot_nodes, LocalProvider(cluster, SPOT)) as account:
        end = time.monotonic() + SECONDS
        jobs.wait(lambda: time.monotonic() > end, SECONDS + 10, "the trace has ended")
    last = jobs.status(name)
    assert account.counts[Act.LOSE] >= _losses() and account.counts[Act.NOTICE] >= 1
    assert last["incarnation"] == first["incarnation"]
    assert last["restarts"]["total"] == first["restarts"]["total"]
    assert last["progress"]["step"] > first["progress"]["step"] + SECONDS / 30
    assert metric(jobs, name, "held_out_reward") > began + 0.05
    jobs.wait_step(name, last["progress"]["step"] + 3, 120)
    names = ("held_out_reward", "explored_seeds", "idle_spot_ratio", "spend")
    figures = ", ".join(f"{one} {metric(jobs, name, one):.3f}" for one in names)
    print(f"{account.counts}; reward at the start {began:.3f}; {figures}")


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
    result = jobs.status(name)["result"]
    check_requests(result)
    assert result["requests"]["consumed"] >= 6 * 32


def test_all_spot_nodes_lost_at_once_stall_the_job_no_longer_than_a_lease(
    cluster: Cluster, jobs: Jobs, spot_nodes: list[str], pool: str
) -> None:
    name = "spotloss"
    create(jobs, name, pool, steps=40)
    jobs.wait(lambda: metric(jobs, name, "explored_seeds") > 0, 180, "spot workers explore")
    step, incarnation = jobs.status(name)["progress"]["step"], jobs.status(name)["incarnation"]
    provider = LocalProvider(cluster, SPOT)
    try:
        for node in spot_nodes:
            provider.lose(node)
        # An iteration lasts about 10 s: rollouts of the trainer alone, and the training.
        jobs.wait_step(name, step + 2, 2 * 30 + LEASE_SECONDS + 30)
        jobs.wait_phase(name, "Succeeded", 600)
    finally:
        for node in spot_nodes:
            provider.give(node)
    status = jobs.status(name)
    assert status["incarnation"] == incarnation
    check_requests(status["result"])
    assert abs(status["result"]["residual"]) < 1e-6
