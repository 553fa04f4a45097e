"""Stragglers on real nodes: who is slowed down is named, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from e2e.tests.jobs import Jobs
from e2e.tests.survival import ENDLESS

RANKS, SLOW = 5, 3
CORES, SLOWED = 0.25, 0.12
"""Processors of each rank, and of one that is held back: all together stay below what the machine has."""


def condition(jobs: Jobs, name: str) -> dict[str, Any]:
    """StragglerDetected of a job; empty before there is one."""
    found = (c for c in jobs.status(name).get("conditions", []) if c["type"] == "StragglerDetected")
    return next(found, {})


def hold(cluster: Cluster, pod: Any, cores: float) -> None:
    """Gives a pod so many processors."""
    cluster.node(pod.spec.node_name).throttle(pod.metadata.uid, cores)


@contextmanager
def throttled(cluster: Cluster, jobs: Jobs, name: str) -> Iterator[list[Any]]:
    """The pods of a job of ranks that were alike before one of them is held back."""
    roles = [{"name": "worker", "replicas": RANKS}]
    jobs.create(name, engine={"name": "gpt", "params": ENDLESS}, roles=roles)
    jobs.wait_phase(name, "Running", 120)
    pods = jobs.pods(name)
    for pod in pods:
        hold(cluster, pod, CORES)
    jobs.wait(lambda: condition(jobs, name).get("status") == "False", 90, "ranks are compared")
    hold(cluster, pods[SLOW], SLOWED)
    yield pods


@pytest.mark.full
def test_a_rank_that_is_throttled_is_named(cluster: Cluster, jobs: Jobs) -> None:
    with throttled(cluster, jobs, "convoy") as pods:
        jobs.wait(lambda: condition(jobs, "convoy").get("status") == "True", 240, "somebody is named")
        said = condition(jobs, "convoy")["message"]
        assert f"rank {SLOW} on {pods[SLOW].spec.node_name} makes the others wait (Compute)" in said
        named = {rank for one in jobs.status("convoy")["stragglers"] for rank in one["ranks"]}
        assert named == {SLOW}
        assert "makes the others wait" in cluster.kubectl("describe", "tj", "-n", jobs.namespace, "convoy")


@pytest.mark.full
def test_what_lasts_is_an_event_and_who_recovers_is_named_no_more(cluster: Cluster, jobs: Jobs) -> None:
    with throttled(cluster, jobs, "lasting") as pods:
        jobs.wait(lambda: "Straggler" in jobs.events("lasting"), 600, "it lasts")
        assert condition(jobs, "lasting")["status"] == "True"
        hold(cluster, pods[SLOW], CORES)
        jobs.wait(
            lambda: condition(jobs, "lasting").get("status") == "False", 600, "nobody is named any more"
        )


def test_of_two_ranks_nobody_is_judged(cluster: Cluster, jobs: Jobs) -> None:
    name = "pair"
    jobs.create(name, engine={"name": "gpt", "params": ENDLESS})
    jobs.wait_phase(name, "Running", 120)
    hold(cluster, jobs.pods(name)[1], CORES)
    jobs.wait(lambda: condition(jobs, name).get("reason") == "TooFewPeers", 60, "it is said")
    found = condition(jobs, name)
    assert found["status"] == "Unknown" and "it takes 4 ranks" in found["message"]
    assert jobs.status(name).get("stragglers", []) == []
