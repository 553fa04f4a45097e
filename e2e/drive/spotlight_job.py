"""A TrainingJob of the engine spotlight on spot nodes: trace, pool, spec, and checks of its requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_workloads.spot.trace import Change, SpotTrace
from e2e.cluster.cluster import Cluster
from e2e.drive.job_specs import single_threaded
from e2e.drive.jobs import Jobs

SPOT, ON_DEMAND = {"convoy.dev/capacity": "spot"}, {"convoy.dev/capacity": "on-demand"}
"""Labels of the nodes."""
PERIOD = 60.0
"""Seconds between two losses."""
NOTICE_SECONDS = 15.0
LEASE_SECONDS = 10
SAMPLES = 64
"""Samples of an iteration: 8 of each of 8 prompts."""
TICK_SECONDS = 10.0
"""Longest time between two accounts of a pool."""
PARAMS = {
    "workers": "ray",
    # A sample lasts 0.06 s, and the training of 64 samples 2.9 s.
    "live": {"pace": 0.03, "capacity": 8},
    "cluster": {"sampleSeconds": 2.0, "trainSeconds": 6.0, "onDemand": 4},
    "planner": "gain",
    "leaseSeconds": LEASE_SECONDS,
    "phaseSeconds": 120,
}


def trace(seconds: float, period: float = PERIOD) -> SpotTrace:
    """Return a trace of two nodes: one is lost with notice, then the other one without, then both at once.
    A lost node returns after a third of the period.
    """
    one, two = ("spot-0",), ("spot-1",)
    events = [Change(0.0, (*one, *two), (), 0.0)]
    at = period
    while at + period < seconds:
        lost, lead = [(one, NOTICE_SECONDS), (two, 0.0), ((*one, *two), 0.0)][round(at / period) % 3]
        events += [Change(at, (), lost, lead), Change(at + period / 3, lost, (), 0.0)]
        at += period
    return SpotTrace(seconds, 2, tuple(events))


def pool_spec(namespace: str) -> dict[str, Any]:
    """Return the spec of a SpotPool of the two spot nodes, for the jobs of a namespace."""
    return {
        "selector": {"matchLabels": SPOT},
        "maxNodes": 2,
        "allowedNamespaces": [namespace],
        "price": {"onDemandPerHour": 1.0, "spot": {"perHour": 0.27}},
    }


def roles(pool: str) -> list[dict[str, Any]]:
    """Return the trainer's role on an on-demand node, and the workers' role on the pool."""
    trainer = {"name": "trainer", "replicas": 1, "template": {"spec": {"nodeSelector": ON_DEMAND}}}
    spot = {"name": "spot", "replicas": 2, "membership": "Independent", "spotPool": pool}
    return [single_threaded(trainer), single_threaded(spot)]


def create(jobs: Jobs, name: str, pool: str, seconds: float = 120, **params: Any) -> None:
    """Create a job on a pool, and wait at most `seconds` until it runs."""
    jobs.create(name, engine={"name": "spotlight", "params": {**PARAMS, **params}}, roles=roles(pool))
    jobs.wait_phase(name, "Running", seconds)


def metrics(progress: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of the engine's metrics in the progress of a job."""
    return {one["name"]: one["value"] for one in progress.get("metrics", ())}


def metric(jobs: Jobs, name: str, metric: str) -> float:
    """Return the newest value of a metric of the engine; 0 before the first one."""
    return float(metrics(jobs.status(name).get("progress", {})).get(metric, 0.0))


def spend(cluster: Cluster, pool: str) -> float:
    """Return the cost of the pool's nodes so far."""
    cost = cluster.get("spotpools", pool)["status"]["cost"]
    return float(cost["spot"] + cost["onDemand"])


def check_requests(iterations: int, trained: int, counts: Mapping[str, int]) -> None:
    """Check that no request was lost or counted twice: each iteration has trained on a sample of each of its
    requests, and the ledger has ended each one once. Raises AssertionError.
    """
    assert trained == SAMPLES * iterations, (trained, iterations)
    assert counts["consumed"] >= trained, "a probe or an explored seed is consumed too, a trained sample once"
    assert counts["expired"] == 0 and counts["open"] <= counts["planned"], counts
    ended = sum(counts[name] for name in ("consumed", "expired", "superseded"))
    assert counts["planned"] == counts["open"] + ended, counts
