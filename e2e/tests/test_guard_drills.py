"""Tests with real faults of nodes and programs: the guard names the right cause and keeps healthy nodes in
service.
"""

from __future__ import annotations

from typing import Any

import pytest

from convoy_crds.perturbations import PerturbationKind
from e2e.cluster.cluster import Cluster
from e2e.drive.jobs import Jobs
from e2e.drive.node_health import POLICY, health, last_action, nodes_ever_acted_on, policy, taints
from e2e.drive.straggler_drill import RANKS, SLOW, Program, drill_job, straggler

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.fixture(autouse=True)
def _enough_nodes(cluster: Cluster) -> None:
    if len(cluster.nodes) <= RANKS:
        pytest.skip("needs a node for each rank and a spare one: set CONVOY_E2E_NODES=6")


@pytest.mark.parametrize(
    ("kind", "size", "cause", "culprits"),
    [
        ("loader", 0.6, "Input", [SLOW]),
        ("disk", 256 * 1024, "Input", [SLOW]),
        ("garbage", 300_000, "Host", [SLOW]),
        (PerturbationKind.LINK_LIMIT, 4.0, "Communication", []),
    ],
)
def test_slowness_not_caused_by_a_node_is_reported_and_no_node_is_cordoned(
    cluster: Cluster, jobs: Jobs, kind: str, size: float, cause: str, culprits: list[int]
) -> None:
    """The job's slowness is not due to a node, or the responsible node is unknown. The cause is reported,
    and all nodes stay in service.
    """
    name = kind.lower()
    sweeps: dict[str, Any] = {"sweeps": {}} if kind == "loader" else {}
    with policy(cluster, name, {**POLICY, **sweeps}), drill_job(cluster, jobs, name) as drill:
        with drill.inject(kind, size):
            jobs.wait(lambda: drill.is_persistent(cause, culprits), 400, f"{kind} is reported as persistent")
            # If a slow processor were the cause, the guard would quarantine the node within this time.
            step = jobs.status(name)["progress"]["step"]
            jobs.wait(
                lambda: jobs.status(name)["progress"]["step"] > step + 20, 300, "the job makes further steps"
            )
            assert nodes_ever_acted_on(cluster) == set() and jobs.status(name)["restarts"]["total"] == 0
            assert bool(health(cluster, drill.node.name).get("noticed")) is bool(sweeps)
        jobs.wait(lambda: not drill.reported(cause, culprits), 600, "the report ends")
        if sweeps:
            jobs.delete(name)
            found = jobs.wait(lambda: cluster.get("healthsweeps")["items"], 60, "a HealthSweep of its node")
            assert [one["spec"]["nodes"] for one in found] == [[drill.node.name]]


def test_only_the_rank_beside_a_cpu_hog_is_named(cluster: Cluster, jobs: Jobs) -> None:
    with policy(cluster, "hogged", POLICY), drill_job(cluster, jobs, "hogged") as drill:
        slow = drill.node.name
        with drill.inject(PerturbationKind.TENANT, 0.5):
            jobs.wait(
                lambda: drill.is_persistent("Compute", [SLOW]), 400, "the straggler is reported as persistent"
            )
            jobs.wait(lambda: jobs.status("hogged")["restarts"]["total"] > 0, 600, "the pod is swapped")
        assert jobs.status("hogged")["restarts"]["last"]["node"] == slow
        jobs.wait(
            lambda: last_action(cluster, slow).get("outcome") == "Right", 400, "the swap sped the job up"
        )
        assert nodes_ever_acted_on(cluster) == {slow}


def test_a_rank_that_is_slow_by_itself_does_not_cordon_a_node(cluster: Cluster, jobs: Jobs) -> None:
    """The rank is slow on every node. The guard swaps its pod once, sees no gain, and returns the node to
    service.
    """
    slow = Program(environment={"DRILL_SLOW_RANK": str(SLOW), "DRILL_SLOW_SECONDS": "1.5"})
    with policy(cluster, "own", POLICY), drill_job(cluster, jobs, "own", slow) as drill:
        first = drill.node.name
        jobs.wait(lambda: straggler(jobs, "own").get("status") == "True", 400, "the rank is named")
        jobs.wait(lambda: jobs.status("own")["restarts"]["total"] > 0, 600, "the pod is swapped once")
        jobs.wait(lambda: last_action(cluster, first).get("outcome") == "Wrong", 600, "the swap did not help")
        jobs.wait(
            lambda: health(cluster, first).get("state") == "Unverified", 30, "the node is back in service"
        )
        second = jobs.pods("own")[SLOW].spec.node_name
        assert second != first
        step = jobs.status("own")["progress"]["step"]
        jobs.wait(
            lambda: jobs.status("own")["progress"]["step"] > step + 40, 600, "the job makes further steps"
        )
        assert jobs.status("own")["restarts"]["total"] == 1 and nodes_ever_acted_on(cluster) == {first}
        assert straggler(jobs, "own")["status"] == "True", "the rank is still reported"
        assert not any(taints(cluster, node.name) for node in cluster.nodes)
