"""Tests of stragglers on real nodes: the guard names the slowed rank, and no other rank."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from convoy_agents.guard.sweep.probes.memory_copy import last_level_cache
from e2e.cluster.cluster import Cluster
from e2e.drive.job_progress import last_step, seconds_per_step
from e2e.drive.job_specs import ENDLESS, memory, on_separate_nodes, one_role
from e2e.drive.jobs import Jobs
from e2e.drive.node_health import (
    POLICY,
    finished_sweep,
    health,
    last_action,
    nodes_ever_acted_on,
    policy,
    sweep,
    taints,
)
from e2e.drive.straggler_drill import (
    CORES,
    RANKS,
    SLOW,
    Program,
    drill_job,
    limit_cpu,
    pods_without_straggler,
    straggler,
)

SLOWED = 0.07
"""Number of processors of the throttled rank."""
LONG = {**ENDLESS, "batch": 16, "context": 64, "layers": 4, "width": 128}
"""Parameters with long steps.

The work of a step must span many CPU quota periods (0.1 s each) and take far longer than the waits between
ranks. Only then is a step longer in proportion if the rank has fewer processors.
"""


@contextmanager
def throttled(
    cluster: Cluster,
    jobs: Jobs,
    name: str,
    cores: float = SLOWED,
    checkpoint: dict[str, Any] | None = None,
) -> Iterator[list[Any]]:
    """Create a job with each rank on its own node, and throttle rank SLOW. Yield the pods."""
    # A container sees both processors of the machine and would start two threads. Each would spin while it
    # waits for the other, so use one thread.
    environment = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    template = {
        "spec": {**on_separate_nodes(name)["spec"], "containers": [{"name": "worker", "env": environment}]}
    }
    roles = [{"name": "worker", "replicas": RANKS, "template": template}]
    jobs.create(name, engine={"name": "gpt", "params": LONG}, roles=roles, checkpoint=checkpoint)
    pods = pods_without_straggler(cluster, jobs, name)
    limit_cpu(cluster, pods[SLOW], cores)
    yield pods


@pytest.mark.full
def test_a_throttled_rank_is_named(cluster: Cluster, jobs: Jobs) -> None:
    with throttled(cluster, jobs, "convoy") as pods:
        jobs.wait(lambda: straggler(jobs, "convoy").get("status") == "True", 240, "a straggler is named")
        message = straggler(jobs, "convoy")["message"]
        assert f"the other ranks wait for rank {SLOW} on {pods[SLOW].spec.node_name} (Compute)" in message
        named = {rank for one in jobs.status("convoy")["stragglers"] for rank in one.get("ranks", ())}
        assert named == {SLOW}
        assert "the other ranks wait for" in cluster.kubectl("describe", "tj", "-n", jobs.namespace, "convoy")


@pytest.mark.full
def test_a_persistent_straggler_gets_an_event_and_is_cleared_on_recovery(
    cluster: Cluster, jobs: Jobs
) -> None:
    with throttled(cluster, jobs, "lasting") as pods:
        jobs.wait(lambda: "Straggler" in jobs.events("lasting"), 600, "it lasts")
        assert straggler(jobs, "lasting")["status"] == "True"
        limit_cpu(cluster, pods[SLOW], CORES)
        jobs.wait(lambda: straggler(jobs, "lasting").get("status") == "False", 600, "no straggler is named")


@pytest.mark.full
def test_a_job_of_two_ranks_names_no_straggler(cluster: Cluster, jobs: Jobs) -> None:
    name = "pair"
    # Use two threads per rank. With one thread, steps take only milliseconds, and the condition appears later
    # than this test waits.
    threads = {"name": "worker", "env": [{"name": "OMP_NUM_THREADS", "value": "2"}]}
    jobs.create(name, engine={"name": "gpt", "params": ENDLESS}, roles=one_role(threads, 2))
    jobs.wait_phase(name, "Running", 120)
    limit_cpu(cluster, jobs.pods(name)[1], CORES)
    jobs.wait(lambda: straggler(jobs, name).get("reason") == "TooFewPeers", 60, "the reason TooFewPeers")
    found = straggler(jobs, name)
    assert found["status"] == "Unknown" and "fewer than 4 ranks" in found["message"]
    assert jobs.status(name).get("stragglers", []) == []


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_slow_rank_of_two_is_a_suspect_and_its_node_is_left_alone(cluster: Cluster, jobs: Jobs) -> None:
    """One peer proves nothing. So even a policy of mode Act, which would swap a proven straggler within
    seconds, changes nothing on the node.
    """
    name, slow = "suspect", 1
    with (
        policy(cluster, name, POLICY),
        drill_job(cluster, jobs, name, Program(replicas=2, slow=slow)) as drill,
    ):
        limit_cpu(cluster, drill.pods[slow], 0.6 * CORES)
        jobs.wait(lambda: straggler(jobs, name).get("reason") == "StragglerSuspected", 240, "a suspect")
        found = straggler(jobs, name)
        assert found["status"] == "True"
        # A limit on the processor slows every part of a step.
        where = f"the other ranks seem to wait for rank {slow} on {drill.node.name} "
        assert re.search(re.escape(where) + r"\((Compute|Input)\)", found["message"]), found["message"]

        def lasts() -> bool:
            return any(drill.is_persistent(cause, [slow]) for cause in ("Compute", "Input"))

        jobs.wait(lasts, 240, "the suspicion lasts")
        accused = [one for one in jobs.status(name)["stragglers"] if one.get("ranks")]
        assert {one["proof"] for one in accused} == {"FewPeers"}
        jobs.wait(lambda: "StragglerSuspected" in jobs.events(name), 60, "its Event")
        step = last_step(jobs, name)
        jobs.wait(lambda: last_step(jobs, name) > step + 40, 300, "the job makes further steps")
        assert jobs.status(name)["restarts"]["total"] == 0
        assert nodes_ever_acted_on(cluster) == set()
        assert not any(taints(cluster, node.name) for node in cluster.nodes)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_suspect_s_job_is_swapped_after_a_checkpoint_and_its_node_is_tested(
    cluster: Cluster, jobs: Jobs
) -> None:
    name, slow = "tested", 1
    if len(cluster.nodes) < 3:
        pytest.skip("needs two nodes for the ranks and a spare one: set CONVOY_E2E_NODES=3")
    with (
        policy(cluster, name, {**POLICY, "sweeps": {"deadline": "5m"}}),
        drill_job(cluster, jobs, name, Program(replicas=2, slow=slow)) as drill,
    ):
        node = drill.node.name
        limit_cpu(cluster, drill.pods[slow], 0.6 * CORES)
        jobs.wait(lambda: jobs.status(name)["restarts"]["total"] > 0, 600, "the pod is swapped")
        last = jobs.status(name)["restarts"]["last"]
        assert (last["reason"], last["counted"], last["node"]) == ("SuspectSwapped", False, node)
        jobs.wait_phase(name, "Running", 180)
        assert node not in {pod.spec.node_name for pod in jobs.pods(name)}
        found = jobs.wait(lambda: cluster.get("healthsweeps")["items"], 60, "a HealthSweep of its node")
        assert [one["spec"]["nodes"] for one in found] == [[node]]
        assert taints(cluster, node) == {"convoy.dev/unqualified": "NoSchedule"}
        step = last_step(jobs, name)
        jobs.wait(lambda: last_step(jobs, name) > step, 180, "the job makes further steps")
        jobs.wait(lambda: not taints(cluster, node), 900, "the test ends, and the node is in service again")
        assert nodes_ever_acted_on(cluster) == set()


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_slow_rank_of_two_pipelines_is_a_suspect(cluster: Cluster, jobs: Jobs) -> None:
    """Two replicas of four stages, whose last stage has twice the work. The program reports its layout, so
    no rank of the long stage is blamed.
    """
    name, slow = "pipelines", 5
    program = Program("pipeline.py", replicas=2, processes=4, slow=1, cores=0.5)
    with drill_job(cluster, jobs, name, program) as drill:
        assert straggler(jobs, name)["reason"] == "TooFewPeers", "eight ranks would have enough peers"
        with drill.inject("slow", 1):
            jobs.wait(lambda: straggler(jobs, name).get("reason") == "StragglerSuspected", 240, "a suspect")
            assert f"rank {slow} on {drill.node.name} (Compute)" in straggler(jobs, name)["message"]
            jobs.wait(lambda: drill.is_persistent("Compute", [slow]), 240, "the suspicion lasts")
        jobs.wait(lambda: not drill.reported("Compute", [slow]), 300, "the suspicion ends")


def test_inventories_of_real_nodes_are_read(cluster: Cluster, jobs: Jobs) -> None:
    with sweep(cluster, "inventories", selector={}, tiers=["L0"]):
        status = jobs.wait(lambda: finished_sweep(cluster, "inventories"), 120, "all nodes have a verdict")
        assert {one["verdict"] for one in status["nodes"]} == {"Pass"}, status["nodes"]
        assert {one["node"] for one in status["nodes"]} >= {node.name for node in cluster.nodes}
        names = {one["hardwareClass"] for one in status["nodes"]}
        known = {one["metadata"]["name"]: one["status"] for one in cluster.get("hardwareclasses")["items"]}
        assert names == set(known) and all(one["facts"]["cpu.model"] for one in known.values())
        line = cluster.kubectl("get", "healthsweeps", "inventories").splitlines()[1].split()
        assert line[1:4] == ["Complete", f"{len(status['nodes'])}/{len(status['nodes'])}", "0"]


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_real_nodes_measure_themselves_and_each_other(cluster: Cluster, jobs: Jobs) -> None:
    """All measurements must exist. The verdicts are Inconclusive, because there are too few nodes to
    compare.
    """
    names = [node.name for node in cluster.nodes]
    with sweep(cluster, "figures", nodes=names, tiers=["L0", "L1", "L2"], deadline="25m"):
        status = jobs.wait(lambda: finished_sweep(cluster, "figures"), 1600, "all nodes have a verdict")
        assert {one["verdict"] for one in status["nodes"]} == {"Inconclusive"}, status["nodes"]
        assert all("TooFewReferences" in one["message"] for one in status["nodes"]), status["nodes"]
        measured: dict[str, list[Any]] = {}
        for one in cluster.get("hardwareclasses")["items"]:
            for metric in one["status"]["metrics"]:
                measured.setdefault(metric["name"], []).extend(metric["recent"])
        expected = {"cpu-gemm", "jitter", "loopback", "disk-write", "disk-read", "fingerprint"}
        if 4 * last_level_cache() < 3 * 2**28:
            # The agent runs this measurement only if its buffer fits into the agent's memory.
            expected.add("memory-copy")
        assert {name: len(rows) for name, rows in measured.items()} == dict.fromkeys(expected, len(names))
        assert len({row["digest"] for row in measured["fingerprint"]}) == 1, "all compute the same bits"


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("share", [0.7, 0.5])
def test_a_job_is_swapped_off_a_slow_node_and_users_return_the_node(
    cluster: Cluster, jobs: Jobs, share: float
) -> None:
    """One rank's node gets only the fraction `share` of the processors that each other node has."""
    if len(cluster.nodes) <= RANKS:
        pytest.skip("needs a node for each rank and a spare one: set CONVOY_E2E_NODES=6")
    name = "swapped"
    with (
        policy(cluster, "swap", POLICY),
        throttled(cluster, jobs, name, share * CORES, checkpoint=memory("10s")) as pods,
    ):
        slow = pods[SLOW].spec.node_name
        others = {pod.spec.node_name for pod in pods} - {slow}
        jobs.wait(lambda: jobs.status(name)["restarts"]["total"] > 0, 900, "the pod is swapped")
        last = jobs.status(name)["restarts"]["last"]
        assert (last["reason"], last["counted"], last["node"]) == ("StragglerSwapped", False, slow)
        jobs.wait_phase(name, "Running", 180)
        now = {pod.spec.node_name for pod in jobs.pods(name)}
        assert slow not in now and others < now
        jobs.wait(
            lambda: health(cluster, slow).get("state") == "Requalifying",
            60,
            "the node is empty and requalifies",
        )
        assert taints(cluster, slow) == {"convoy.dev/quarantined": "NoSchedule"}
        assert not any(taints(cluster, node) for node in now) and nodes_ever_acted_on(cluster) == {slow}
        saved = jobs.status(name)["checkpoint"]["step"]
        assert saved > 0
        jobs.wait(lambda: last_step(jobs, name) > saved, 180, "steps after the saved one")
        jobs.wait(
            lambda: last_action(cluster, slow).get("outcome") == "Right", 240, "the swap sped the job up"
        )
        before = last_action(cluster, slow)["paces"][0]
        expected = before["seconds"] - before["gain"]
        after = seconds_per_step(jobs, name)
        print(f"a step: {before['seconds']:.3f} s, {expected:.3f} s expected, {after:.3f} s after the swap")
        table = cluster.kubectl("get", "nodehealths")
        assert any("Requalifying" in line and slow in line for line in table.splitlines())
        hardware = next(
            one["metadata"]["name"]
            for one in cluster.get("nodehealths")["items"]
            if one["status"]["nodeRef"]["name"] == slow
        )
        release = {"at": "2026-01-01T00:00:00Z", "reason": "the drill is over", "user": "e2e"}
        patch = json.dumps({"spec": {"release": release}})
        cluster.kubectl("patch", "nodehealths", hardware, "--type=merge", "-p", patch)
        jobs.wait(lambda: not taints(cluster, slow), 30, "the node is back in service")
        assert health(cluster, slow)["state"] == "Probation"
    jobs.wait(
        lambda: "convoy.dev/node-health" not in cluster.get("nodes", slow)["metadata"]["labels"],
        60,
        "no mark is left on the node",
    )
