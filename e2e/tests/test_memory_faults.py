"""Tests of jobs with checkpoints in memory. They must survive killed kubelets, killed ranks, and slow or
lossy networks.
"""

from __future__ import annotations

import time

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.node import Node
from e2e.drive.fault_injection import training_job, undisturbed
from e2e.drive.faults import half_open_connections, kill_processes, lossy_network, memory_pressure
from e2e.drive.job_progress import final_state_digest, wait_for_copies, watermark
from e2e.drive.job_specs import memory_job_spec
from e2e.drive.jobs import Jobs
from e2e.drive.recovery import moment

STEPS = 3000
"""Number of steps: more than the job makes while the network is faulty."""


def saved_step(jobs: Jobs, name: str, tier: str) -> int:
    """Return the step of the newest generation at a tier; -1 if there is none."""
    return int((watermark(jobs.status(name), tier) or {"step": -1})["step"])


def wait_saves(jobs: Jobs, name: str, tier: str, times: int = 3, seconds: float = 60) -> None:
    """Wait until a tier's watermark has advanced `times` times."""
    for _ in range(times):
        last = saved_step(jobs, name, tier)
        jobs.wait(lambda: saved_step(jobs, name, tier) > last, seconds, f"{tier} after step {last}")  # noqa: B023


def undisturbed_state(jobs: Jobs, name: str) -> str:
    """Run a job of STEPS steps without faults. Return the digest of its final state."""
    jobs.create(name, **memory_job_spec(name, STEPS))
    found = final_state_digest(jobs, name, 600)
    jobs.delete(name)
    return found


def pod_folder(node: Node, uid: str) -> str:
    """Return a pod's folder and mounts on a node as text; empty if there are none."""
    look = 'ls -d "/var/lib/kubelet/pods/$1" 2>/dev/null; grep -F "$1" /proc/self/mountinfo; true'
    return node.run(["sh", "-c", look, "look", uid]).strip()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_killed_kubelet_does_not_disturb_jobs_and_unmounts_volumes_later(
    cluster: Cluster, jobs: Jobs
) -> None:
    with training_job(cluster, jobs, "kubelet", **memory_job_spec("kubelet", 100_000)) as job:
        wait_for_copies(jobs, "kubelet")
        pod = job.pods[1]
        node, uid = cluster.node(pod.spec.node_name), pod.metadata.uid

        def kubelet_pid() -> str:
            return node.run(["cat", "/run/kubelet.pid"])

        def last_heartbeat() -> float:
            lease = cluster.get("--namespace=kube-node-lease", "lease", node.name)
            return moment(lease["spec"]["renewTime"])

        with undisturbed(job):
            first, killed = kubelet_pid(), time.time()
            kill_processes(node, "kubelet")
            jobs.wait(lambda: kubelet_pid() != first, 30, "another kubelet")
            jobs.wait(lambda: last_heartbeat() > killed, 60, "the kubelet reports again")
            wait_saves(jobs, "kubelet", "peer")
        assert pod_folder(node, uid)
        recovery = job.delete_pod()
        assert (recovery.reason, recovery.replaced) == ("PodDeleted", 1)
        assert "continues after step" in jobs.log("kubelet-worker-0")
        jobs.wait(lambda: not pod_folder(node, uid), 120, "the pod's volumes are unmounted")
        wait_saves(jobs, "kubelet", "peer")


LIMIT_MIB = 1024


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_rank_killed_by_the_kernel_for_memory_resumes_at_its_step(cluster: Cluster, jobs: Jobs) -> None:
    wanted = undisturbed_state(jobs, "control-starved")
    body = memory_job_spec("starved", STEPS)
    limits = {"limits": {"memory": f"{LIMIT_MIB}Mi"}}
    body["roles"][0]["template"]["spec"]["containers"] = [{"name": "worker", "resources": limits}]
    with training_job(cluster, jobs, "starved", **body) as job:
        wait_for_copies(jobs, "starved")
        pod = job.pods[1]
        with memory_pressure(
            cluster, cluster.node(pod.spec.node_name), pod.metadata.uid, (LIMIT_MIB - 100) << 20
        ):
            jobs.wait(lambda: jobs.status("starved")["restarts"]["total"] > 0, 60, "the rank is killed")
        assert final_state_digest(jobs, "starved", 600) == wanted
        last = jobs.status("starved")["restarts"]["last"]
        assert last["reason"] in ("OutOfMemory", "ContainerOutOfMemory") and last["counted"]
        assert "continues after step" in jobs.log("starved-worker-0")


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_poor_network_causes_no_restart_and_no_changed_bit(cluster: Cluster, jobs: Jobs) -> None:
    """The network of one rank's node loses packets and is slow, and copies still get through. After the
    loss of the other rank's node, the job continues from these copies.
    """
    wanted = undisturbed_state(jobs, "control-poor")
    with training_job(cluster, jobs, "poor", **memory_job_spec("poor", STEPS)) as job:
        wait_for_copies(jobs, "poor")
        with lossy_network(cluster.node(job.pods[0].spec.node_name)):
            with undisturbed(job):
                wait_saves(jobs, "poor", "peer", seconds=120)
            assert job.kill_node(index=1, seconds=240).replaced == 1
        assert final_state_digest(jobs, "poor", 900) == wanted
        assert jobs.status("poor")["restarts"]["counted"] == 0
        log = jobs.log("poor-worker-0")
        assert "continues after step" in log and "step 0" not in log


@pytest.mark.full
@pytest.mark.timeout(600)
def test_steps_continue_while_a_connection_is_half_open(cluster: Cluster, jobs: Jobs) -> None:
    """One node receives no copies and the senders get no error. Steps continue, and later copies get
    through.
    """
    with (
        training_job(cluster, jobs, "half-open", **memory_job_spec("half-open", 100_000)) as job,
        undisturbed(job),
    ):
        wait_for_copies(jobs, "half-open")

        def wait_steps(steps: int = 100) -> None:
            jobs.wait_step("half-open", jobs.status("half-open")["progress"]["step"] + steps)

        with half_open_connections(cluster.node(job.pods[1].spec.node_name)):
            wait_steps()
            # Copies of saves from before the fault have either arrived by now or never will. So the watermark
            # must stay where it is.
            last_copied = saved_step(jobs, "half-open", "peer")
            wait_steps()
            assert (
                saved_step(jobs, "half-open", "peer") == last_copied < saved_step(jobs, "half-open", "local")
            )
        jobs.wait(lambda: saved_step(jobs, "half-open", "peer") > last_copied, 120, "copies after the fault")
        wait_saves(jobs, "half-open", "peer")
