"""Tests of elastic jobs, which run on with fewer pods and include the missing pods again later."""

from __future__ import annotations

from typing import Any

from convoy_controllers.commands import Assign
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_crds.trainingjob_status import Phase

SAVES = {"tiers": {"local": {}}}


def job(**spec: Any) -> ToyCluster:
    roles = [{"name": "worker", "replicas": 3, "minReplicas": 2, "processesPerReplica": 2}]
    return ToyCluster(make_job(roles=roles, checkpoint=SAVES, **spec), make_engine())


def running() -> ToyCluster:
    return job().settle().train(5).settle().wait(10)


def lose_node_of(cluster: ToyCluster, pod: str) -> None:
    node = cluster.pods[pod].node
    assert node is not None
    cluster.schedulable = False
    cluster.silence(node, 6.0, agent_ready=False).settle()


def assigned(cluster: ToyCluster, incarnation: int) -> list[tuple[int, ...]]:
    return sorted(
        (command.slot, command.rank_offset, command.processes, command.world_size, command.slots)
        for plan in cluster.plans
        for command in plan.commands
        if isinstance(command, Assign) and command.incarnation == incarnation
    )


def test_a_lost_node_shrinks_the_job_at_once() -> None:
    cluster = running()
    lose_node_of(cluster, "job-worker-1")
    status = cluster.job.status
    assert (status.phase, status.reason, status.ready) == (Phase.RUNNING, "Shrunk", "2/3")
    assert status.roles[0].absent == [1] and "job-worker-1" in status.message
    assert assigned(cluster, 2) == [(0, 0, 2, 4, 2), (1, 2, 2, 4, 2)]
    assert cluster.pods["job-worker-1"].unschedulable


def test_below_the_minimum_the_job_waits() -> None:
    cluster = running()
    for pod in ("job-worker-1", "job-worker-2"):
        lose_node_of(cluster, pod)
    assert cluster.job.status.phase is Phase.RESTARTING
    assert cluster.condition["Running"] == ("False", "Unschedulable")


def test_a_job_without_min_replicas_waits_for_all() -> None:
    cluster = ToyCluster(make_job(roles=[{"name": "worker", "replicas": 3}]), make_engine()).settle().wait(10)
    lose_node_of(cluster, "job-worker-1")
    assert cluster.job.status.phase is Phase.RESTARTING and not cluster.job.status.formed


def comes_up(cluster: ToyCluster, pod: str) -> None:
    cluster.schedulable = True
    cluster.lose(pod).settle()


def test_job_regrows_only_after_the_next_checkpoint() -> None:
    cluster = running()
    cluster.commit(5).settle()
    lose_node_of(cluster, "job-worker-1")
    comes_up(cluster.wait(30), "job-worker-1")
    assert (
        cluster.job.status.incarnation == 2
        and cluster.job.status.internal.incarnation.whole_since is not None
    )
    cluster.wait(30).train(20).settle()
    assert cluster.job.status.incarnation == 2
    cluster.commit(20).settle()
    status = cluster.job.status
    assert (status.phase, status.reason, status.ready) == (Phase.RUNNING, "Training", "3/3")
    assert status.restarts.last is not None
    assert (status.restarts.last.reason, status.restarts.counted) == ("Regrow", 0)
    assert status.roles[0].absent == [] and status.internal.incarnation.whole_since is None
    assert assigned(cluster, 3) == [(0, 0, 2, 6, 3), (1, 2, 2, 6, 3), (2, 4, 2, 6, 3)]


def test_loss_of_the_returned_pod_before_the_regrowth_changes_nothing() -> None:
    cluster = running()
    lose_node_of(cluster, "job-worker-1")
    comes_up(cluster, "job-worker-1")
    cluster.lose("job-worker-1")
    cluster.schedulable = False
    cluster.settle().commit(30).settle()
    assert cluster.job.status.incarnation == 2 and cluster.job.status.internal.incarnation.whole_since is None


def test_shrunk_job_succeeds_with_its_present_ranks() -> None:
    cluster = running()
    lose_node_of(cluster, "job-worker-1")
    cluster.exit_all().settle()
    assert cluster.job.status.phase is Phase.SUCCEEDED


def test_a_first_formation_shrinks_only_around_pods_without_a_node() -> None:
    cluster = job()
    cluster.launchers = False
    cluster.settle()
    cluster.schedulable = False
    cluster.lose("job-worker-2").settle()
    assert not cluster.job.status.formed
    for name in ("job-worker-0", "job-worker-1"):
        pod = cluster.pods[name]
        cluster.launchers = True
        cluster.connect(pod.name)
    cluster.settle()
    assert (cluster.job.status.phase, cluster.job.status.reason) == (Phase.RUNNING, "Shrunk")


def test_deleted_pod_is_awaited_for_a_limited_time() -> None:
    cluster = running()
    cluster.launchers = False
    cluster.lose("job-worker-1").settle()
    assert cluster.job.status.phase is Phase.RESTARTING
    wait = cluster.plans[-1].requeue_after
    assert wait is not None and wait <= 10
    cluster.wait(10).settle()
    assert (cluster.job.status.phase, cluster.job.status.reason) == (Phase.RUNNING, "Shrunk")


def test_job_waits_for_a_saving_pod_until_its_grace_period_ends() -> None:
    cluster = running()
    begin = cluster.now.timestamp()
    leaves = {"deleting": True, "disruption": "EvictionByEvictionAPI"}
    cluster.pod("job-worker-1", **leaves, leaving_since=begin, leaves_by=begin + 300).settle()
    cluster.wait(60).settle()
    assert not cluster.job.status.formed and not assigned(cluster, 2)
    cluster.wait(241).settle()
    assert (cluster.job.status.phase, cluster.job.status.reason) == (Phase.RUNNING, "Shrunk")


def test_job_does_not_regrow_while_its_spec_cannot_run() -> None:
    cluster = running()
    cluster.commit(5).settle()
    lose_node_of(cluster, "job-worker-1")
    comes_up(cluster.wait(30), "job-worker-1")
    cluster.engine = None
    cluster.wait(60).train(20).commit(20).settle()
    assert cluster.job.status.incarnation == 2 and cluster.job.status.phase is Phase.RUNNING
    assert len(cluster.pods) >= 2
