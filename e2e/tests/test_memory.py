"""Checkpoints in the memory of nodes: what is left of the job brings it back, bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.node import Node
from e2e.drive.cluster_state import restore
from e2e.drive.fault_injection import training_job
from e2e.drive.faults import kill_processes, kill_rank
from e2e.drive.job_progress import final_state_digest, held_out_losses, last_step, wait_for_copies, watermark
from e2e.drive.job_specs import SMALL, memory, memory_job_spec
from e2e.drive.jobs import Jobs
from e2e.drive.s3_server import checkpoint_store, s3_server
from e2e.drive.shared_volumes import STORE, volume_store

STEPS = 700
LONG, EVERY = 1800, 60
"""Steps that outlast four blows, and how often their loss is taken."""
TWO_BY_TWO = {"replicas": 2, "processesPerReplica": 2}
"""Pods, and ranks of each. The sum of two numbers has one order: two ranks would hide a restored job that
adds its gradients up in another order.
"""


def in_memory(node: Node) -> list[str]:
    """Uids of the jobs that have memory on a node."""
    return node.run(["sh", "-c", "ls /run/convoy/memory 2>/dev/null; true"]).split()


def test_what_is_left_brings_the_job_back_with_the_same_bits(cluster: Cluster, jobs: Jobs) -> None:
    """A rank, an agent, a pod and a node are killed; the same job beside it is left alone."""
    steps = {**SMALL, "steps": LONG, "held_out_every": EVERY}
    engine = {"name": "gpt", "params": steps}
    spec = memory_job_spec("struck", LONG)
    jobs.create("struck", **{**spec, "engine": engine, "roles": [{**spec["roles"][0], **TWO_BY_TWO}]})
    try:
        jobs.wait_phase("struck", "Running", 60)
        # Its first pod, and so the other job, is on the node that nothing is done to.
        safe = {"nodeSelector": {"kubernetes.io/hostname": jobs.pods("struck")[0].spec.node_name}}
        role = {"name": "worker", **TWO_BY_TWO, "template": {"spec": safe}}
        jobs.create("calm", engine=engine, roles=[role])
        for number, fault in enumerate(("rank", "agent", "pod", "node")):
            wait_for_copies(jobs, "struck", jobs.status("struck")["incarnation"] if number else 1)
            status = jobs.status("struck")
            assert status["phase"] == "Running", f"{fault}: the job ends too early at {status['progress']}"
            inject(cluster, jobs, "struck", fault)
        assert final_state_digest(jobs, "struck", 600) == final_state_digest(jobs, "calm"), (
            "every weight and moment of the optimizer"
        )
        status = jobs.status("struck")
        assert (status["restarts"]["counted"], status["progress"]["step"]) == (1, LONG), "the rank counts"
        logs = {name: jobs.log(f"{name}-worker-0") for name in ("struck", "calm")}
        assert "continues after step" in logs["struck"] and "step 0" not in logs["struck"]
        assert jobs.status("calm")["incarnation"] == 1 and "continues after step" not in logs["calm"]
        curves = {name: held_out_losses(log, EVERY) for name, log in logs.items()}
        assert len(curves["calm"]) == LONG // EVERY and curves["calm"] == curves["struck"]
    finally:
        restore(cluster)
        jobs.delete("struck")
    # What the job kept goes with it, also from the node that was away.
    jobs.wait(lambda: not any(in_memory(node) for node in cluster.nodes), 60, "memory is given back")


def inject(cluster: Cluster, jobs: Jobs, name: str, fault: str) -> None:
    """Deals a fault to a job's second pod or to its agent, and waits for the restart if one follows."""
    pods, before = jobs.pods(name), jobs.status(name)
    node = cluster.node(pods[1].spec.node_name)
    if fault == "agent":
        kill_processes(node, "convoy-agent")
        return
    if fault == "rank":
        kill_rank(cluster, node.name, pods[1].metadata.uid, 3)
    elif fault == "pod":
        jobs.core.delete_namespaced_pod(pods[1].metadata.name, jobs.namespace, grace_period_seconds=0)
    else:
        node.kill()
    jobs.wait(lambda: jobs.status(name)["incarnation"] > before["incarnation"], 60, fault)
    if fault == "rank":
        assert [pod.metadata.uid for pod in jobs.pods(name)] == [pod.metadata.uid for pod in pods]
        restarts = jobs.status(name)["restarts"]
        assert (restarts["total"], restarts["last"]["reason"]) == (1, "RankKilled")
        assert jobs.status(name)["incarnation"] == 2


def test_a_job_that_does_not_fit_says_what_is_missing(jobs: Jobs) -> None:
    small = {"interval": "1s", "tiers": {"local": {"memory": "9Mi"}}}
    jobs.create("large", **{**memory_job_spec("large", 100_000, replicas=1), "checkpoint": small})
    try:
        jobs.wait_step("large", 20)
        jobs.wait(lambda: "bytes are missing" in jobs.log("large-worker-0"), 60, "it says so")
        assert "is 9437184 bytes" in jobs.log("large-worker-0")
    finally:
        jobs.delete("large")


def lose_all_memory(
    cluster: Cluster, jobs: Jobs, name: str, store: str, names: Callable[[], list[str]]
) -> None:
    """A job goes on from what it has in a store, with the same bits. `names`: of all that is there."""
    jobs.create(f"calm-{name}", **memory_job_spec(f"calm-{name}", STEPS))
    wanted = final_state_digest(jobs, f"calm-{name}")
    jobs.delete(f"calm-{name}")
    stored = memory("1s", remote={"store": store, "every": "1s"})
    jobs.create(name, **{**memory_job_spec(name, STEPS), "checkpoint": stored})
    try:
        jobs.wait(lambda: watermark(jobs.status(name), "remote"), 60, "a generation in the store")
        jobs.patch(name, suspend=True)
        jobs.wait_phase(name, "Suspended", 60)
        holding = [node for node in cluster.nodes if in_memory(node)]
        assert holding
        for node in holding:
            node.kill()
        restore(cluster)
        assert not any(in_memory(node) for node in cluster.nodes)
        jobs.patch(name, suspend=False)
        assert final_state_digest(jobs, name) == wanted
        assert "continues after step" in jobs.log(f"{name}-worker-0")
        assert any("/records/gen-" in key for key in names())
    finally:
        restore(cluster)
        jobs.delete(name)
    # What is in the store outlives the job.
    assert any("/records/gen-" in key for key in names())


@pytest.mark.full
@pytest.mark.timeout(900)
def test_all_memory_is_lost_and_the_store_brings_the_job_back(cluster: Cluster, jobs: Jobs) -> None:
    with s3_server(cluster) as found, checkpoint_store(cluster, found) as store:
        lose_all_memory(cluster, jobs, "stored", store, found.names)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_all_memory_is_lost_and_a_shared_volume_brings_the_job_back(cluster: Cluster, jobs: Jobs) -> None:
    with volume_store(cluster) as folder:

        def names() -> list[str]:
            return [str(path) for path in folder.rglob("*") if path.is_file()]

        lose_all_memory(cluster, jobs, "on-disk", STORE, names)


MINUTES = 10


def steps_per_second(jobs: Jobs, name: str) -> float:
    """Steps a second that a job makes here."""
    jobs.wait_step(name, 20, 300)
    began, first = time.monotonic(), last_step(jobs, name)
    jobs.wait_step(name, first + 300, 600)
    return (last_step(jobs, name) - first) / (time.monotonic() - began)


@pytest.mark.full
@pytest.mark.timeout(4800)
def test_a_node_is_lost_every_minute(cluster: Cluster, jobs: Jobs) -> None:
    """A node killed and started again each minute, one more than there are ranks: the same weights."""
    world = min(3, len(cluster.nodes) - 1)
    with training_job(cluster, jobs, "paced", **memory_job_spec("paced", 100_000, world)):
        # As many as take ten minutes when nothing happens: more than that with faults.
        steps = round(steps_per_second(jobs, "paced") * 60 * MINUTES)
    jobs.create("calm-long", **memory_job_spec("calm-long", steps, world))
    wanted = final_state_digest(jobs, "calm-long", 1800)
    jobs.delete("calm-long")
    with training_job(cluster, jobs, "stormy", **memory_job_spec("stormy", steps, world)) as job:
        began = time.monotonic()
        for number in range(MINUTES):
            time.sleep(max(0.0, began + 60 * number - time.monotonic()))  # a fault a minute
            if jobs.status("stormy")["phase"] != "Running":
                break
            wait_for_copies(jobs, "stormy", jobs.status("stormy")["incarnation"])
            job.kill_node(index=number % world)
            restore(cluster)
        assert final_state_digest(jobs, "stormy", 1800) == wanted
        restarts = jobs.status("stormy")["restarts"]
        # A rank that notices before the operator does begins a restart of its own.
        assert restarts["total"] >= MINUTES and restarts["counted"] == 0
