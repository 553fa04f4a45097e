"""Tests of checkpoints in the memory of nodes: surviving copies restore the job bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.node import Node
from e2e.drive.cluster_state import restore
from e2e.drive.fault_injection import training_job
from e2e.drive.faults import kill_processes
from e2e.drive.job_progress import final_state_digest, held_out_losses, last_step, wait_for_copies, watermark
from e2e.drive.job_specs import SMALL, memory, memory_job_spec
from e2e.drive.jobs import Jobs
from e2e.drive.perturbations import kill_rank
from e2e.drive.s3_server import checkpoint_store, s3_server
from e2e.drive.shared_volumes import STORE, volume_store

STEPS = 700
LONG, EVERY = 1800, 60
"""Number of steps of a job that must outlast four faults, and steps between two measurements of the loss."""
TWO_BY_TWO = {"replicas": 2, "processesPerReplica": 2}
"""Two pods with two ranks each.

With four ranks, the sum of gradients depends on the order of the additions. So the test notices if a
restored job uses another order. With two ranks, the order does not matter.
"""


def jobs_in_memory(node: Node) -> list[str]:
    """Return the uids of the jobs that have checkpoint memory on a node."""
    return node.run(["sh", "-c", "ls /run/convoy/memory 2>/dev/null; true"]).split()


def test_the_job_resumes_from_remaining_copies_with_the_same_bits(cluster: Cluster, jobs: Jobs) -> None:
    """Kill a rank, an agent, a pod and a node of a job. Its final state equals that of a job without
    faults.
    """
    steps = {**SMALL, "steps": LONG, "held_out_every": EVERY}
    engine = {"name": "gpt", "params": steps}
    spec = memory_job_spec("faulted", LONG)
    jobs.create("faulted", **{**spec, "engine": engine, "roles": [{**spec["roles"][0], **TWO_BY_TWO}]})
    try:
        jobs.wait_phase("faulted", "Running", 60)
        # Let the control job run on the node that gets no faults, beside the first pod of the faulted job.
        safe = {"nodeSelector": {"kubernetes.io/hostname": jobs.pods("faulted")[0].spec.node_name}}
        role = {"name": "worker", **TWO_BY_TWO, "template": {"spec": safe}}
        jobs.create("control", engine=engine, roles=[role])
        for number, fault in enumerate(("rank", "agent", "pod", "node")):
            wait_for_copies(jobs, "faulted", jobs.status("faulted")["incarnation"] if number else 1)
            status = jobs.status("faulted")
            assert status["phase"] == "Running", (
                f"{fault}: the job ended before all faults, at {status['progress']}"
            )
            inject(cluster, jobs, "faulted", fault)
        assert final_state_digest(jobs, "faulted", 600) == final_state_digest(jobs, "control"), (
            "all weights and optimizer moments are equal"
        )
        status = jobs.status("faulted")
        assert (status["restarts"]["counted"], status["progress"]["step"]) == (1, LONG), (
            "only the killed rank counts as a restart"
        )
        logs = {name: jobs.log(f"{name}-worker-0") for name in ("faulted", "control")}
        assert "continues after step" in logs["faulted"] and "step 0" not in logs["faulted"]
        assert jobs.status("control")["incarnation"] == 1 and "continues after step" not in logs["control"]
        curves = {name: held_out_losses(log, EVERY) for name, log in logs.items()}
        assert len(curves["control"]) == LONG // EVERY and curves["control"] == curves["faulted"]
    finally:
        restore(cluster)
        jobs.delete("faulted")
    # After the deletion of the job, its checkpoint memory must be freed on all nodes, including the node that
    # crashed.
    jobs.wait(
        lambda: not any(jobs_in_memory(node) for node in cluster.nodes), 60, "the job's memory is freed"
    )


def inject(cluster: Cluster, jobs: Jobs, name: str, fault: str) -> None:
    """Inject a fault into a job's second pod, its node or its agent. If the job must restart, wait for the
    restart.
    """
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


@pytest.mark.full
def test_a_job_that_does_not_fit_reports_the_missing_memory(jobs: Jobs) -> None:
    small = {"interval": "1s", "tiers": {"local": {"memory": "9Mi"}}}
    jobs.create("large", **{**memory_job_spec("large", 100_000, replicas=1), "checkpoint": small})
    try:
        jobs.wait_step("large", 20)
        jobs.wait(
            lambda: "more bytes are needed" in jobs.log("large-worker-0"), 60, "the missing bytes in the log"
        )
        assert "is 9437184 bytes" in jobs.log("large-worker-0")
    finally:
        jobs.delete("large")


def lose_all_memory(
    cluster: Cluster, jobs: Jobs, name: str, store: str, names: Callable[[], list[str]]
) -> None:
    """Crash all nodes with a job's memory, and assert that the job continues from a store with the same
    bits.

    `names` returns the names of all files or objects in the store.
    """
    jobs.create(f"control-{name}", **memory_job_spec(f"control-{name}", STEPS))
    wanted = final_state_digest(jobs, f"control-{name}")
    jobs.delete(f"control-{name}")
    stored = memory("1s", remote={"store": store, "every": "1s"})
    jobs.create(name, **{**memory_job_spec(name, STEPS), "checkpoint": stored})
    try:
        jobs.wait(lambda: watermark(jobs.status(name), "remote"), 60, "a generation in the store")
        jobs.patch(name, suspend=True)
        jobs.wait_phase(name, "Suspended", 60)
        holding = [node for node in cluster.nodes if jobs_in_memory(node)]
        assert holding
        for node in holding:
            node.kill()
        restore(cluster)
        assert not any(jobs_in_memory(node) for node in cluster.nodes)
        jobs.patch(name, suspend=False)
        assert final_state_digest(jobs, name) == wanted
        assert "continues after step" in jobs.log(f"{name}-worker-0")
        assert any("/records/gen-" in key for key in names())
    finally:
        restore(cluster)
        jobs.delete(name)
    # Checkpoints in the store must outlive the job.
    assert any("/records/gen-" in key for key in names())


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_job_resumes_from_the_store_after_the_loss_of_all_memory(cluster: Cluster, jobs: Jobs) -> None:
    with s3_server(cluster) as found, checkpoint_store(cluster, found) as store:
        lose_all_memory(cluster, jobs, "stored", store, found.names)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_the_job_resumes_from_a_shared_volume_after_the_loss_of_all_memory(
    cluster: Cluster, jobs: Jobs
) -> None:
    with volume_store(cluster) as folder:

        def names() -> list[str]:
            return [str(path) for path in folder.rglob("*") if path.is_file()]

        lose_all_memory(cluster, jobs, "on-disk", STORE, names)


MINUTES = 10


def steps_per_second(jobs: Jobs, name: str) -> float:
    """Measure and return the job's steps per second on this machine."""
    jobs.wait_step(name, 20, 300)
    began, first = time.monotonic(), last_step(jobs, name)
    jobs.wait_step(name, first + 300, 600)
    return (last_step(jobs, name) - first) / (time.monotonic() - began)


@pytest.mark.full
@pytest.mark.timeout(4800)
def test_a_job_trains_while_a_node_is_lost_every_minute(cluster: Cluster, jobs: Jobs) -> None:
    """Crash and restart a node every minute. The cluster has at least one node more than the job has ranks.
    The final weights equal those of the control job, which has no faults.
    """
    world = min(3, len(cluster.nodes) - 1)
    with training_job(cluster, jobs, "paced", **memory_job_spec("paced", 100_000, world)):
        # Without faults, this number of steps takes ten minutes. Faults make the job slower, so it still runs
        # at the last fault.
        steps = round(steps_per_second(jobs, "paced") * 60 * MINUTES)
    jobs.create("control-long", **memory_job_spec("control-long", steps, world))
    wanted = final_state_digest(jobs, "control-long", 1800)
    jobs.delete("control-long")
    with training_job(
        cluster, jobs, "faulted-often", **memory_job_spec("faulted-often", steps, world)
    ) as job:
        began = time.monotonic()
        for number in range(MINUTES):
            time.sleep(max(0.0, began + 60 * number - time.monotonic()))  # Inject one fault per minute.
            if jobs.status("faulted-often")["phase"] != "Running":
                break
            wait_for_copies(jobs, "faulted-often", jobs.status("faulted-often")["incarnation"])
            job.kill_node(index=number % world)
            restore(cluster)
        assert final_state_digest(jobs, "faulted-often", 1800) == wanted
        restarts = jobs.status("faulted-often")["restarts"]
        # A rank may detect a fault before the operator does, and cause one more restart.
        assert restarts["total"] >= MINUTES and restarts["counted"] == 0
