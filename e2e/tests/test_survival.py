"""Tests of jobs under faults of ranks, pods, nodes and the control plane. The jobs must survive. The
survival bench measures how fast they recover.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from e2e.drive.cluster_state import leader, lease_holder, nodes_with_agent, restore
from e2e.drive.commit_audit import commits
from e2e.drive.fault_injection import STEPPING, JobUnderTest, training_job, undisturbed
from e2e.drive.faults import kill_processes
from e2e.drive.job_progress import final_state_digest, held_out_losses, watermark
from e2e.drive.job_specs import ENDLESS, SMALL, memory, on_separate_nodes
from e2e.drive.jobs import Jobs
from e2e.drive.perturbations import kill_rank
from e2e.drive.s3_server import checkpoint_store, s3_server
from e2e.drive.shared_volumes import STORE, volume_store
from e2e.drive.torchrun_job import own_script
from e2e.install import NAMESPACE


class TestOneJob:
    """Tests of one job, into which each test injects another fault."""

    @pytest.fixture(scope="class")
    def job(self, cluster: Cluster, early: Jobs) -> Iterator[JobUnderTest]:
        with training_job(cluster, early, "survivor") as job:
            yield job

    def test_a_killed_rank_restarts_in_its_pod(self, job: JobUnderTest) -> None:
        recovery = job.kill_rank()
        assert (recovery.reason, recovery.replaced, recovery.incarnations) == ("RankKilled", 0, 1)

    def test_only_the_deleted_pod_is_replaced(self, job: JobUnderTest) -> None:
        counted = job.watch.status["restarts"]["counted"]
        recovery = job.delete_pod()
        assert (recovery.reason, recovery.replaced) == ("PodDeleted", 1)
        assert job.watch.status["restarts"]["counted"] == counted

    def test_a_job_continues_after_the_loss_of_the_leader(self, cluster: Cluster, job: JobUnderTest) -> None:
        with undisturbed(job):
            kill_processes(cluster.node(leader(cluster)[1]), "convoy-operator")
            wait_progress(job, job.watch.status["progress"]["step"])
        assert job.kill_rank().replaced == 0

    def test_the_pod_of_a_dead_node_is_replaced_on_another_node(
        self, cluster: Cluster, job: JobUnderTest
    ) -> None:
        dead, counted = job.pods[1].spec.node_name, job.watch.status["restarts"]["counted"]
        faults = offenders(job).get(dead, 0)
        # Wait until the job has made more steps than before any earlier fault. Otherwise the operator sees no
        # progress between two faults and replaces more than the faulty pod.
        wait_progress(job, job.watch.status["internal"]["restarts"].get("best", 0))
        recovery = job.kill_node()
        assert (recovery.reason, recovery.replaced) == ("NodeLost", 1)
        assert job.watch.status["restarts"]["counted"] == counted
        assert dead not in {pod.spec.node_name for pod in job.pods}
        assert f"node/{dead}" not in nodes_with_agent(cluster)
        assert offenders(job)[dead] == faults + 1
        # After its return, the node must have a ready agent again.
        restore(cluster)
        assert f"node/{dead}" in nodes_with_agent(cluster)


def offenders(job: JobUnderTest) -> dict[str, int]:
    """Return the number of the job's faults on each node, as listed in the job's status."""
    return {one["node"]: one["faults"] for one in job.watch.status.get("offenders", ())}


@pytest.mark.full
def test_a_killed_rank_of_an_unmodified_script_restarts_in_its_pod(cluster: Cluster, jobs: Jobs) -> None:
    with own_script(jobs, "script") as spec, training_job(cluster, jobs, "script", **spec) as job:
        recovery = job.kill_rank()
        assert (recovery.reason, recovery.replaced) == ("RankKilled", 0)


@pytest.mark.full
def test_an_elastic_job_continues_without_a_dead_node_and_regrows(cluster: Cluster, jobs: Jobs) -> None:
    role = {"name": "worker", "replicas": 3, "minReplicas": 2, "template": on_separate_nodes("elastic")}
    with training_job(cluster, jobs, "elastic", roles=[role]) as job:
        job.kill_node()
        status = job.watch.status
        assert (status["reason"], status["ready"]) == ("Shrunk", "2/3")
        restore(cluster)
        job.watch.until(
            lambda: job.watch.status.get("ready") == "3/3" and job.watch.status["reason"] == "Training",
            120,
            "all pods of the job are back",
        )
        status = job.watch.status
        assert status["restarts"]["last"]["reason"] == "Regrow"
        jobs.wait(lambda: status["incarnation"] in job.restored, 60, "the job continues from a checkpoint")


@pytest.mark.full
def test_a_strict_job_is_replaced_only_after_its_old_worker_must_have_stopped(
    cluster: Cluster, jobs: Jobs
) -> None:
    with own_script(jobs, "strict") as spec, training_job(cluster, jobs, "strict", **spec) as job:
        pod = job.pods[1]
        node, uid = cluster.node(pod.spec.node_name), pod.metadata.uid
        recovery = job.cut_node()
        assert (recovery.reason, recovery.replaced) == ("NodeLost", 1)
        # The cut-off node still runs, but its agent must have ended the job's processes on it.
        assert ranks_of(cluster, node.name, uid) == []
        assert recovery.created is not None and recovery.created > 20


def ranks_of(cluster: Cluster, node: str, uid: str) -> list[str]:
    """Return the pids of a pod's processes that are named rank-N."""
    look = (
        'for pid in /proc/[0-9]*; do case "$(cat $pid/comm 2>/dev/null)" in rank-*) '
        'grep -q "$1" $pid/cgroup 2>/dev/null && echo $pid;; esac; done; true'
    )
    return cluster.node(node).run(["sh", "-c", look, "look", uid]).split()


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fencing", ["Commit", "Strict"])
def test_a_partitioned_node_commits_nothing_after_its_replacement(
    cluster: Cluster, jobs: Jobs, fencing: str
) -> None:
    """A job's only worker is on a cut-off node that can still write to the job's store, a volume.

    After the job's next incarnation has begun, only the store can refuse commits of the old worker. The old
    worker continues to save in its node's memory. When the node is back, no rank restores from that memory.
    """
    tiers = {"local": {}, "remote": {"store": STORE, "every": "1s"}}
    spec = {"checkpoint": {"interval": "2s", "tiers": tiers}, "recovery": {"fencing": fencing}}
    with (
        volume_store(cluster) as folder,
        training_job(cluster, jobs, f"alone-{fencing.lower()}", replicas=1, **spec) as job,
        commits(folder) as commit_log,
    ):
        node, uid = job.pods[0].spec.node_name, job.pods[0].metadata.uid
        old = job.watch.status["incarnation"]
        cut = time.time()
        # No other agent of the job can confirm the fault, so the operator relies on the kubelet's Lease. That
        # takes longer, so allow 180 s.
        job.cut_node(index=0, seconds=180)
        job.watch.until(
            lambda: (mark := watermark(job.watch.status, "remote")) and mark["incarnation"] > old,
            60,
            "the next incarnation has stored a generation",
        )
        if fencing == "Strict":
            assert ranks_of(cluster, node, uid) == []
        restore(cluster)
        jobs.wait(lambda: not ranks_of(cluster, node, uid), 60, "the old worker has ended")
        job.kill_rank(rank=0)
        assert any(at > cut + 1 for one, at in commit_log.committed_at.items() if one.incarnation == old), (
            "it could commit"
        )
        assert len(job.restored) >= 2, "restored from the store, then from memory"
        commit_log.audit(job.restored)


@pytest.mark.full
def test_a_killed_or_replaced_agent_does_not_disturb_jobs(cluster: Cluster, jobs: Jobs) -> None:
    with training_job(cluster, jobs, "agent") as job:
        incarnation = job.watch.status["incarnation"]
        node = cluster.node(job.pods[1].spec.node_name)
        step = job.watch.status["progress"]["step"]
        kill_processes(node, "convoy-agent")
        wait_progress(job, step)
        cluster.kubectl("-n", NAMESPACE, "rollout", "restart", "ds/convoy-agent")
        cluster.kubectl(
            "-n", NAMESPACE, "rollout", "status", "ds/convoy-agent", "--timeout=180s", deadline=190
        )
        wait_progress(job, job.watch.status["progress"]["step"])
        assert job.watch.status["incarnation"] == incarnation
        assert job.watch.status["restarts"]["total"] == 0


def wait_progress(job: JobUnderTest, step: int) -> None:
    """Wait until the job has made steps beyond `step` and has committed another checkpoint."""
    saved = job.watch.status["checkpoint"]["step"]
    job.watch.until(lambda: job.watch.status["progress"]["step"] > step + 20, 60, "steps go on")
    job.watch.until(lambda: job.watch.status["checkpoint"]["step"] > saved, 60, "commits go on")


OUTAGE_SECONDS = 60.0


@pytest.mark.full
def test_a_job_continues_during_an_outage_of_the_api_server(cluster: Cluster, jobs: Jobs) -> None:
    """During an outage of the API server, both jobs continue to train. One job also commits to its store.
    The other has fencing Strict, and its agents do not stop it.
    """
    with (
        s3_server(cluster) as found,
        checkpoint_store(cluster, found) as name,
        own_script(jobs, "strict-outage") as spec,
        training_job(cluster, jobs, "strict-outage", **spec) as strict,
        training_job(
            cluster, jobs, "outage", checkpoint=memory(remote={"store": name, "every": "1s"})
        ) as job,
        commits(found.bucket) as commit_log,
        undisturbed(strict),
        undisturbed(job),
    ):
        step = strict.watch.status["progress"]["step"]
        began = time.time()
        cluster.components.stop("kube-apiserver")
        time.sleep(OUTAGE_SECONDS)  # Wait without a condition, because this is the length of the outage.
        restore(cluster)
        late = [at for at in commit_log.committed_at.values() if began + 30 < at < began + OUTAGE_SECONDS]
        assert len(late) > 3, "commits continue until the end of the outage, every 2 s"
        strict.watch.until(
            lambda: strict.watch.status["progress"]["step"] > step + 100,
            60,
            "steps went on during the outage",
        )
        wait_progress(job, job.watch.status["progress"]["step"])


KILLS = 20
FAILOVER_SECONDS = 15.0


@pytest.mark.full
def test_a_job_recovers_when_the_leader_is_killed_at_random_moments(cluster: Cluster, jobs: Jobs) -> None:
    """Kill the leader between restarts and during restarts. No pod is created twice, and a new leader
    starts soon.
    """
    rng = random.Random(5)
    with training_job(cluster, jobs, "leaders") as job:
        deleted_pods = 0
        for number in range(KILLS):
            fault = ("none", "rank", "pod")[number % 3]
            cluster.kubectl("-n", NAMESPACE, "rollout", "status", "deploy/convoy-operator", "--timeout=60s",
                            deadline=70)  # fmt: skip
            leads, (leader_pod, node) = lease_holder(cluster), leader(cluster)
            incarnation = job.watch.status["incarnation"]
            if fault == "rank":
                pod = job.pods[1]
                kill_rank(cluster, pod.spec.node_name, pod.metadata.uid, 1)
            elif fault == "pod":
                deleted_pods += 1
                name = job.pods[1].metadata.name
                job.jobs.core.delete_namespaced_pod(name, job.jobs.namespace, grace_period_seconds=0)
            # Wait for a random time, so that the kill hits a random moment of the restart.
            time.sleep(rng.uniform(0.0, 2.0))
            kill_processes(cluster.node(node), "convoy-operator")
            killed = time.monotonic()
            # Delete the pod, because the kubelet would delay each restart of its container further.
            cluster.kubectl("-n", NAMESPACE, "delete", "pod", leader_pod, "--grace-period=0", "--force")
            jobs.wait(lambda: lease_holder(cluster) not in ("", leads), 30, "another leader")  # noqa: B023
            assert time.monotonic() - killed < FAILOVER_SECONDS
            wanted = incarnation + (fault != "none")
            job.watch.until(
                lambda: (
                    job.watch.status["incarnation"] == wanted  # noqa: B023
                    and job.watch.status["goodput"]["cause"] in STEPPING
                ),
                60,
                f"incarnation {wanted} steps after kill {number} ({fault})",
            )
        assert len(job.watch.pods) == 2 + deleted_pods, "no pod was created twice"
        assert job.watch.status["restarts"]["total"] == sum(n % 3 > 0 for n in range(KILLS))


@pytest.mark.full
def test_a_drained_pod_saves_its_state_and_is_replaced(cluster: Cluster, jobs: Jobs) -> None:
    roles = [{"name": "worker", "replicas": 2, "template": on_separate_nodes("drained")}]
    jobs.create("drained", engine={"name": "gpt", "params": ENDLESS}, checkpoint=memory("1h"), roles=roles)
    try:
        jobs.wait_step("drained", 20)
        node = jobs.pods("drained")[1].spec.node_name
        cluster.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
                        "--pod-selector=convoy.dev/job=drained", "--timeout=60s", deadline=70)  # fmt: skip
        status = jobs.wait(
            lambda: (s := jobs.status("drained"))["restarts"]["total"] and s, 30, "restarted elsewhere"
        )
        assert (status["restarts"]["last"]["reason"], status["restarts"]["counted"]) == ("NodeDrained", 0)
        status = jobs.wait_phase("drained", "Running", 60)
        assert status["checkpoint"]["step"] >= 20, "the drain saved the only checkpoint"
        assert node not in {pod.spec.node_name for pod in jobs.pods("drained")}
    finally:
        cluster.kubectl("uncordon", *[one.name for one in cluster.nodes])
        jobs.delete("drained")


def test_a_crash_loop_ends_at_the_restart_budget_with_its_stderr(jobs: Jobs) -> None:
    crash = {"image": "convoy/torch:dev", "command": ["python", "-c", "raise SystemExit('no such dataset')"]}
    role = {"name": "worker", "replicas": 1, "template": {"spec": {"containers": [crash]}}}
    jobs.create("loop", engine=None, roles=[role], recovery={"maxRestarts": 2})
    status = jobs.wait(
        lambda: (found := jobs.status("loop")).get("phase") == "Failed" and found, 60, "it failed"
    )
    assert status["reason"] == "MaxRestartsExceeded"
    assert "no such dataset" in status["message"]
    assert status["restarts"]["total"] == 2


MEMORY_PROGRAM = "import torch; a = []\nwhile True: a.append(torch.ones(1 << 22)); a[-1] += 1"


def test_a_rank_that_runs_out_of_memory_is_reported(jobs: Jobs) -> None:
    eater = {
        "image": "convoy/torch:dev",
        "command": ["python", "-c", MEMORY_PROGRAM],
        "resources": {"requests": {"memory": "512Mi"}, "limits": {"memory": "512Mi"}},
    }
    role = {"name": "worker", "replicas": 1, "template": {"spec": {"containers": [eater]}}}
    jobs.create("eater", engine=None, roles=[role], recovery={"maxRestarts": 1})
    status = jobs.wait(
        lambda: (found := jobs.status("eater")).get("phase") == "Failed" and found, 90, "it failed"
    )
    assert status["restarts"]["last"]["reason"] in ("OutOfMemory", "ContainerOutOfMemory")
    assert "resources.limits.memory" in status["restarts"]["last"]["message"]


@pytest.mark.full
@pytest.mark.parametrize("world", [2, 3])
def test_faults_do_not_change_a_bit_of_the_loss_curve(cluster: Cluster, jobs: Jobs, world: int) -> None:
    spec: dict[str, Any] = {
        "engine": {"name": "gpt", "params": {**SMALL, "steps": 600, "held_out_every": 20}},
        "checkpoint": memory(),
        "roles": [{"name": "worker", "replicas": world}],
    }
    curves, states = [], []
    for name in (f"control-{world}", f"faulted-{world}"):
        jobs.create(name, **spec)
        if name.startswith("faulted"):
            kill_rank_once(cluster, jobs, name)
        states.append(final_state_digest(jobs, name, 240))
        log = jobs.log(f"{name}-worker-0")
        curves.append(held_out_losses(log, every=20))
        again = name.startswith("faulted")
        assert jobs.status(name)["incarnation"] == (2 if again else 1)
        assert ("continues after step" in log) == again
    control, faulted = curves
    assert len(control) == 30 and control == faulted
    assert states[0] == states[1], "all weights and optimizer moments are equal bit for bit"


def kill_rank_once(cluster: Cluster, jobs: Jobs, name: str) -> None:
    """Kill rank 1 after the first checkpoint, and wait for the restart."""
    jobs.wait(lambda: jobs.status(name).get("checkpoint", {}).get("step"), 90, "a checkpoint")
    pod = jobs.pods(name)[1]
    kill_rank(cluster, pod.spec.node_name, pod.metadata.uid, 1)
    jobs.wait(lambda: jobs.status(name)["incarnation"] == 2, 30, "a restart")
