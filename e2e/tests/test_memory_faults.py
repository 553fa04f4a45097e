"""What a job in the memory of nodes does not mind: a kubelet that is killed, networks that lose and delay."""

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
"""More than are made while the network is poor."""


def mark(jobs: Jobs, name: str, tier: str) -> int:
    """The newest step that stands at a tier; -1 for none."""
    return int((watermark(jobs.status(name), tier) or {"step": -1})["step"])


def until_saved(jobs: Jobs, name: str, tier: str, times: int = 3, seconds: float = 60) -> None:
    """Waits until a tier's watermark has moved so often."""
    for _ in range(times):
        last = mark(jobs, name, tier)
        jobs.wait(lambda: mark(jobs, name, tier) > last, seconds, f"{tier} after step {last}")  # noqa: B023


def undisturbed_state(jobs: Jobs, name: str) -> str:
    """What a run of STEPS ends with when nothing happens to it."""
    jobs.create(name, **memory_job_spec(name, STEPS))
    found = final_state_digest(jobs, name, 600)
    jobs.delete(name)
    return found


def pod_folder(node: Node, uid: str) -> str:
    """What a node has of a pod: its folder and its mounts; empty when nothing."""
    look = 'ls -d "/var/lib/kubelet/pods/$1" 2>/dev/null; grep -F "$1" /proc/self/mountinfo; true'
    return node.run(["sh", "-c", look, "look", uid]).strip()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_kubelet_that_is_killed_disturbs_nobody_and_takes_down_what_it_has_put_up(
    cluster: Cluster, jobs: Jobs
) -> None:
    with training_job(cluster, jobs, "kubelet", **memory_job_spec("kubelet", 100_000)) as job:
        wait_for_copies(jobs, "kubelet")
        pod = job.pods[1]
        node, uid = cluster.node(pod.spec.node_name), pod.metadata.uid

        def process() -> str:
            return node.run(["cat", "/run/kubelet.pid"])

        def beat() -> float:
            lease = cluster.get("--namespace=kube-node-lease", "lease", node.name)
            return moment(lease["spec"]["renewTime"])

        with undisturbed(job):
            first, killed = process(), time.time()
            kill_processes(node, "kubelet")
            jobs.wait(lambda: process() != first, 30, "another kubelet")
            jobs.wait(lambda: beat() > killed, 60, "it reports")
            until_saved(jobs, "kubelet", "peer")
        assert pod_folder(node, uid)
        recovery = job.delete_pod()
        assert (recovery.reason, recovery.replaced) == ("PodDeleted", 1)
        assert "continues after step" in jobs.log("kubelet-worker-0")
        jobs.wait(lambda: not pod_folder(node, uid), 120, "its volumes are taken down")
        until_saved(jobs, "kubelet", "peer")


LIMIT_MIB = 1024


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_rank_that_the_kernel_kills_for_memory_goes_on_where_it_was(cluster: Cluster, jobs: Jobs) -> None:
    wanted = undisturbed_state(jobs, "calm-starved")
    body = memory_job_spec("starved", STEPS)
    limits = {"limits": {"memory": f"{LIMIT_MIB}Mi"}}
    body["roles"][0]["template"]["spec"]["containers"] = [{"name": "worker", "resources": limits}]
    with training_job(cluster, jobs, "starved", **body) as job:
        wait_for_copies(jobs, "starved")
        pod = job.pods[1]
        with memory_pressure(
            cluster, cluster.node(pod.spec.node_name), pod.metadata.uid, (LIMIT_MIB - 100) << 20
        ):
            jobs.wait(lambda: jobs.status("starved")["restarts"]["total"] > 0, 60, "it was killed")
        assert final_state_digest(jobs, "starved", 600) == wanted
        last = jobs.status("starved")["restarts"]["last"]
        assert last["reason"] in ("OutOfMemory", "ContainerOutOfMemory") and last["counted"]
        assert "continues after step" in jobs.log("starved-worker-0")


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_poor_network_costs_no_restart_and_no_bit(cluster: Cluster, jobs: Jobs) -> None:
    """Copies are made over it, and what is on its node brings the job back after the other one is lost."""
    wanted = undisturbed_state(jobs, "calm-poor")
    with training_job(cluster, jobs, "poor", **memory_job_spec("poor", STEPS)) as job:
        wait_for_copies(jobs, "poor")
        with lossy_network(cluster.node(job.pods[0].spec.node_name)):
            with undisturbed(job):
                until_saved(jobs, "poor", "peer", seconds=120)
            assert job.kill_node(index=1, seconds=240).replaced == 1
        assert final_state_digest(jobs, "poor", 900) == wanted
        assert jobs.status("poor")["restarts"]["counted"] == 0
        log = jobs.log("poor-worker-0")
        assert "continues after step" in log and "step 0" not in log


@pytest.mark.full
@pytest.mark.timeout(600)
def test_steps_go_on_beside_a_connection_that_is_half_open(cluster: Cluster, jobs: Jobs) -> None:
    """No copy gets to one of the nodes, and nobody is told; then they do again."""
    with (
        training_job(cluster, jobs, "half-open", **memory_job_spec("half-open", 100_000)) as job,
        undisturbed(job),
    ):
        wait_for_copies(jobs, "half-open")

        def further(steps: int = 100) -> None:
            jobs.wait_step("half-open", jobs.status("half-open")["progress"]["step"] + steps)

        with half_open_connections(cluster.node(job.pods[1].spec.node_name)):
            further()
            # What was under way has its copies by now, or does not get them.
            held = mark(jobs, "half-open", "peer")
            further()
            assert mark(jobs, "half-open", "peer") == held < mark(jobs, "half-open", "local")
        jobs.wait(lambda: mark(jobs, "half-open", "peer") > held, 120, "copies after it")
        until_saved(jobs, "half-open", "peer")
