"""Real troubles of real nodes and programs: each is told as what it is, and healthy nodes are left alone."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from e2e.drive.jobs import Jobs
from e2e.drive.node_health import POLICY, health, last_action, nodes_ever_acted_on, policy, taints
from e2e.drive.straggler_drill import RANKS, SLOW, drill_job, straggler

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.fixture(autouse=True)
def _enough_nodes(cluster: Cluster) -> None:
    if len(cluster.nodes) <= RANKS:
        pytest.skip("a node for each rank and a spare: CONVOY_E2E_NODES=6")


@pytest.mark.parametrize(
    ("kind", "size", "cause", "culprits"),
    [
        ("loader", 0.6, "Input", [SLOW]),
        ("disk", 256 * 1024, "Input", [SLOW]),
        ("garbage", 300_000, "Host", [SLOW]),
        ("network", 4.0, "Communication", []),
    ],
)
def test_what_is_no_fault_of_a_node_is_told_and_held_against_none(
    cluster: Cluster, jobs: Jobs, kind: str, size: float, cause: str, culprits: list[int]
) -> None:
    """Or of which it cannot be told which node it is."""
    sweeps: dict[str, Any] = {"sweeps": {}} if kind == "loader" else {}
    with policy(cluster, kind, {**POLICY, **sweeps}), drill_job(cluster, jobs, kind) as drill:
        with drill.inject(kind, size):
            jobs.wait(lambda: drill.lasting(cause, culprits), 400, f"{kind} is told as lasting")
            # As long as a slow processor takes to have its node quarantined.
            step = jobs.status(kind)["progress"]["step"]
            jobs.wait(lambda: jobs.status(kind)["progress"]["step"] > step + 20, 300, "it goes on")
            assert nodes_ever_acted_on(cluster) == set() and jobs.status(kind)["restarts"]["total"] == 0
            assert bool(health(cluster, drill.node.name).get("noticed")) is bool(sweeps)
        jobs.wait(lambda: not drill.reported(cause, culprits), 600, "it is over")
        if sweeps:
            jobs.delete(kind)
            found = jobs.wait(lambda: cluster.get("healthsweeps")["items"], 60, "its node is to be tested")
            assert [one["spec"]["nodes"] for one in found] == [[drill.node.name]]


def test_a_hog_beside_a_rank_is_named_and_nobody_else(cluster: Cluster, jobs: Jobs) -> None:
    with policy(cluster, "hogged", POLICY), drill_job(cluster, jobs, "hogged") as drill:
        slow = drill.node.name
        with drill.inject("cpu_pressure", 1.0):
            jobs.wait(lambda: drill.lasting("Compute", [SLOW]), 400, "it is told as lasting")
            jobs.wait(lambda: jobs.status("hogged")["restarts"]["total"] > 0, 600, "it is swapped")
        assert jobs.status("hogged")["restarts"]["last"]["node"] == slow
        jobs.wait(lambda: last_action(cluster, slow).get("outcome") == "Right", 400, "the swap sped it up")
        assert nodes_ever_acted_on(cluster) == {slow}


def test_a_rank_that_is_slow_by_itself_costs_no_node_its_service(cluster: Cluster, jobs: Jobs) -> None:
    """The detector is as wrong as it can be: what it sees is true, and no node is to blame."""
    environment = {"DRILL_SLOW_RANK": str(SLOW), "DRILL_SLOW_SECONDS": "1.5"}
    with policy(cluster, "own", POLICY), drill_job(cluster, jobs, "own", **environment) as drill:
        first = drill.node.name
        jobs.wait(lambda: straggler(jobs, "own").get("status") == "True", 400, "it is named")
        jobs.wait(lambda: jobs.status("own")["restarts"]["total"] > 0, 600, "it is swapped, once")
        jobs.wait(lambda: last_action(cluster, first).get("outcome") == "Wrong", 600, "it did no good")
        jobs.wait(lambda: health(cluster, first).get("state") == "Unverified", 30, "the node is let go")
        second = jobs.pods("own")[SLOW].spec.node_name
        assert second != first
        step = jobs.status("own")["progress"]["step"]
        jobs.wait(lambda: jobs.status("own")["progress"]["step"] > step + 40, 600, "it goes on")
        assert jobs.status("own")["restarts"]["total"] == 1 and nodes_ever_acted_on(cluster) == {first}
        assert straggler(jobs, "own")["status"] == "True", "people are told of the rank all the same"
        assert not any(taints(cluster, node.name) for node in cluster.nodes)
