"""Tests of lost nodes: which nodes are lost, when a replacement is safe, and what a loss costs the job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convoy_controllers.liveness.lost_nodes import why_lost
from convoy_controllers.testing.builders import NOW, ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob import nodes
from convoy_controllers.trainingjob.plan import plan
from convoy_controllers.views import NodeView, SlotView
from convoy_crds.trainingjob_status import Phase

OWN = {
    "engine": None,
    "roles": [
        {
            "name": "worker",
            "replicas": 3,
            "template": {"spec": {"containers": [{"image": "mine", "command": ["python", "train.py"]}]}},
        }
    ],
}
SILENT = NodeView("n", silent_seconds=6.0, silent_since=1000.0, pods_reachable=False, lease_seconds=8.0)


@pytest.mark.parametrize(
    ("node", "stepped", "lost"),
    [
        (NodeView("n"), 0.0, False),
        (NodeView("n", ready=False), 0.0, False),
        (NodeView("n", exists=False), 0.0, True),
        (SILENT, 0.0, True),
        (SILENT, 999.0, True),
        (SILENT, 1002.5, True),
        (SILENT, 1003.5, False),  # A synchronous step needs all its ranks.
        (replace(SILENT, pods_reachable=True), 0.0, False),
        (replace(SILENT, pods_reachable=True, ready=False), 0.0, True),
        (replace(SILENT, pods_reachable=True, ready=False), 1003.5, False),
        (replace(SILENT, silent_seconds=0.0), 0.0, False),
    ],
)
def test_node_is_lost_if_two_sources_agree(node: NodeView, stepped: float, lost: bool) -> None:
    view = SlotView("pod", "other", True, stepped=stepped)
    assert bool(why_lost(node, [view])) is lost


def test_steps_reported_by_the_silent_node_itself_prove_nothing() -> None:
    assert why_lost(SILENT, [SlotView("pod", "n", False, stepped=2000.0)])


@pytest.mark.parametrize(
    ("node", "others", "left"),
    [
        (replace(SILENT, exists=False), {"a"}, 0.0),
        (replace(SILENT, silent_seconds=90.0, lease_seconds=90.0, pods_replied=True), set(), 24.0),
        (replace(SILENT, silent_seconds=24.0, lease_seconds=30.0), {"a", "b"}, 0.0),
        (replace(SILENT, silent_seconds=24.0, lease_seconds=14.0), {"a", "b"}, 10.0),
        (replace(SILENT, silent_seconds=6.0, lease_seconds=30.0), set(), 18.0),
        (
            replace(SILENT, silent_seconds=90.0, lease_seconds=90.0, attested_by=frozenset("ab")),
            {"a", "b"},
            24.0,
        ),
        (
            replace(SILENT, silent_seconds=90.0, lease_seconds=90.0, attested_by=frozenset("a")),
            {"a", "b"},
            0.0,
        ),
        (replace(SILENT, silent_seconds=90.0, lease_seconds=90.0, attested_by=frozenset("xyz")), {"a"}, 0.0),
    ],
)
def test_strict_fencing_waits_for_the_last_of_three_sources(
    node: NodeView, others: set[str], left: float
) -> None:
    views = {name: NodeView(name) for name in others}
    assert nodes.unfenced_seconds(node, views) == pytest.approx(left)


@pytest.mark.parametrize(("silent", "left"), [(1, 0.0), (2, 24.0), (3, 24.0)])
def test_jointly_isolated_nodes_may_keep_their_jobs_running(silent: int, left: float) -> None:
    views = {
        name: replace(SILENT, name=name) if i < silent else NodeView(name) for i, name in enumerate("abc")
    }
    node = replace(SILENT, silent_seconds=90.0, lease_seconds=90.0)
    assert nodes.unfenced_seconds(node, views) == left
    deleted = {name: replace(view, exists=False) for name, view in views.items()}
    assert nodes.unfenced_seconds(node, deleted) == 0.0


def on(cluster: ToyCluster, pod: str) -> str:
    node = cluster.pods[pod].node
    assert node is not None
    return node


def running(**spec: object) -> ToyCluster:
    body = {"roles": [{"name": "worker", "replicas": 3}], **spec}
    cluster = ToyCluster(make_job(**body), make_engine()).settle().train(5).settle()
    assert cluster.job.status.phase is Phase.RUNNING
    return cluster.wait(10)


def test_pod_of_a_lost_node_is_replaced() -> None:
    cluster = running()
    node, uids = on(cluster, "job-worker-1"), cluster.uids
    cluster.silence(node, 6.0, agent_ready=False).settle()
    status = cluster.job.status
    assert status.restarts.last is not None
    assert (status.restarts.last.reason, status.restarts.counted, status.restarts.total) == ("NodeLost", 0, 1)
    assert status.offenders[0].node == node
    assert [a == b for a, b in zip(cluster.uids, uids, strict=True)] == [True, False, True]
    assert status.phase is Phase.RUNNING and status.incarnation == 2
    deletions = [pod for plan in cluster.plans for pod in plan.deletions]
    assert [pod.grace_seconds for pod in deletions] == [0]


def test_silent_agent_on_a_reachable_node_changes_nothing() -> None:
    cluster = running()
    cluster.silence(on(cluster, "job-worker-1"), 60.0, pods_reachable=True).settle()
    assert cluster.job.status.incarnation == 1 and cluster.job.status.phase is Phase.RUNNING


def test_custom_program_is_replaced_only_after_the_fencing_time() -> None:
    cluster = ToyCluster(make_job(**OWN)).settle().train(5).settle().wait(10)
    node, uid = on(cluster, "job-worker-1"), cluster.pods["job-worker-1"].uid
    cluster.silence(node, 6.0, agent_ready=False).settle()
    assert cluster.pods["job-worker-1"].uid == uid
    assert cluster.condition["Running"] == ("False", "Fencing")
    assert cluster.plans[-1].requeue_after == 1.0
    cluster.wait(17).silence(node, 23.0).settle()
    assert cluster.pods["job-worker-1"].uid == uid
    cluster.wait(2).silence(node, 25.0).settle()
    assert cluster.pods["job-worker-1"].uid != uid
    assert cluster.job.status.phase is Phase.RUNNING


@pytest.mark.parametrize(("fencing", "strict"), [("Auto", False), ("Commit", False), ("Strict", True)])
def test_fencing_mode_of_an_engine_job(fencing: str, strict: bool) -> None:
    assert nodes.strict(make_job(recovery={"fencing": fencing})) is strict


def test_the_echo_of_a_node_s_loss_does_not_count() -> None:
    cluster = running()
    node = on(cluster, "job-worker-1")
    died = cluster.now.timestamp()
    cluster.exit(0, 1, ended=died).exit(2, 1, ended=died).settle()
    assert cluster.job.status.restarts.counted == 1
    cluster.wait(6).silence(node, 6.0, agent_ready=False).settle()
    status = cluster.job.status
    assert (status.restarts.total, status.restarts.counted, status.internal.restarts.times) == (2, 0, [])
    assert cluster.job.status.phase is Phase.RUNNING


def test_older_error_still_counts_after_a_node_loss() -> None:
    cluster = running()
    cluster.exit(0, 1, ended=cluster.now.timestamp()).settle().wait(60).train(9).settle()
    cluster.silence(on(cluster, "job-worker-1"), 6.0, agent_ready=False).settle()
    assert cluster.job.status.restarts.counted == 1


def test_terminating_pod_on_a_lost_node_is_force_deleted() -> None:
    cluster = running()
    cluster.pod("job-worker-1", deleting=True)
    cluster.silence(on(cluster, "job-worker-1"), 6.0, ready=False, agent_ready=False).settle()
    assert cluster.job.status.phase is Phase.RUNNING and cluster.job.status.restarts.total == 1


def test_step_after_the_last_heartbeat_keeps_the_node() -> None:
    cluster = running()
    node = on(cluster, "job-worker-1")
    cluster.wait(6).silence(node, 6.0).train(9).settle()
    assert cluster.job.status.incarnation == 1
    assert cluster.now > NOW


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"cordoned": True}, "NodeDrained"),
        ({"labels": {"convoy.dev/node-health": "Draining"}}, "StragglerSwapped"),
        ({"labels": {"convoy.dev/node-health": "Sweeping"}}, "SuspectSwapped"),
    ],
)
def test_evicted_pod_is_moved_without_a_counted_restart(facts: dict[str, Any], reason: str) -> None:
    cluster = running()
    node = on(cluster, "job-worker-1")
    cluster.nodes[node] = NodeView(node, **facts)
    cluster.pod("job-worker-1", deleting=True, disruption="EvictionByEvictionAPI").step()
    last = cluster.job.status.restarts.last
    assert last is not None and (last.reason, last.counted) == (reason, False)
    assert cluster.job.status.offenders == []


def test_elastic_strict_job_waits_for_a_worker_that_may_still_run() -> None:
    roles = [{**OWN["roles"][0], "minReplicas": 2}]
    cluster = ToyCluster(make_job(**{**OWN, "roles": roles})).settle().train(5).settle().wait(10)
    cluster.schedulable = False
    node = on(cluster, "job-worker-0")
    for wait, silence, ready in ((0, 6.0, True), (14, 20.0, False)):
        cluster.wait(wait).silence(node, silence, agent_ready=ready).settle()
        assert not cluster.job.status.formed and cluster.condition["Running"][1] == "Fencing"
    cluster.wait(5).silence(node, 25.0, agent_ready=False).settle()
    assert cluster.job.status.reason == "Shrunk" and cluster.job.status.roles[0].absent == [0]


def test_pod_outside_the_incarnation_attests_no_node() -> None:
    roles = [{**OWN["roles"][0], "minReplicas": 2}]
    cluster = ToyCluster(make_job(**{**OWN, "roles": roles})).settle().train(5).settle().wait(10)
    cluster.lose("job-worker-2")
    cluster.schedulable = False
    cluster.settle().train(9).settle()
    assert cluster.job.status.roles[0].absent == [2]
    cluster.schedulable = True
    cluster.lose("job-worker-2").settle().wait(10)
    uids = cluster.uids
    for pod in ("job-worker-0", "job-worker-1"):
        cluster.silence(on(cluster, pod), 8.0, lease_seconds=90.0, agent_ready=False)
    cluster.settle()
    assert cluster.uids == uids, "the two may keep each other going"


def test_an_ended_pod_on_a_lost_node_needs_no_fence() -> None:
    cluster = ToyCluster(make_job(**OWN)).settle().train(5).settle().wait(10)
    uid = cluster.pods["job-worker-1"].uid
    cluster.pod("job-worker-1", phase="Failed", exit_code=75)
    cluster.silence(on(cluster, "job-worker-1"), 6.0, lease_seconds=1.0, agent_ready=False).settle()
    assert cluster.pods["job-worker-1"].uid != uid


def test_a_suspended_job_does_not_wait_for_a_dead_node() -> None:
    cluster = running()
    cluster.pod("job-worker-1", deleting=True)
    cluster.silence(on(cluster, "job-worker-1"), 6.0, agent_ready=False)
    cluster.spec(suspend=True).settle()
    assert cluster.job.status.phase is Phase.SUSPENDED


def test_a_step_proves_that_a_node_lives_for_seconds_only() -> None:
    """A node's agent crashes, and steps go on, so the node is not lost. Then the node fails and steps end.
    A few seconds later the node is lost.
    """
    cluster = running()
    node = on(cluster, "job-worker-1")
    cluster.wait(12).silence(node, 12.0).train(9).settle()
    assert cluster.job.status.incarnation == 1
    cluster.wait(4).silence(node, 16.0).settle()
    assert cluster.job.status.incarnation == 1
    cluster.wait(2).silence(node, 18.0).settle()
    last = cluster.job.status.restarts.last
    assert last is not None and last.reason == "NodeLost"


def test_steps_do_not_attest_a_node_outside_the_incarnation() -> None:
    roles = [{"name": "worker", "replicas": 3, "minReplicas": 2}]
    cluster = running(roles=roles)
    cluster.launchers = False
    cluster.lose("job-worker-2").settle().wait(10).settle()
    assert cluster.job.status.roles[0].absent == [2]
    uid = cluster.pods["job-worker-2"].uid
    cluster.pod("job-worker-2", node="node-x")
    for _ in range(4):
        cluster.wait(3).train(int(cluster.now.timestamp()) % 10_000 + 50)
        cluster.silence("node-x", 9.0, agent_ready=False).settle()
    assert cluster.pods["job-worker-2"].uid != uid and cluster.job.status.incarnation == 2


def test_elastic_strict_job_waits_for_a_terminating_worker() -> None:
    roles = [{**OWN["roles"][0], "minReplicas": 2}]
    cluster = ToyCluster(make_job(**{**OWN, "roles": roles})).settle().train(5).settle().wait(60)
    cluster.pod("job-worker-1", deleting=True).settle()
    cluster.wait(15).settle()
    assert not cluster.job.status.formed and cluster.job.status.phase is Phase.RESTARTING
    cluster.schedulable = False
    cluster.lose("job-worker-1").settle()
    assert cluster.job.status.reason == "Shrunk"


def test_elastic_engine_job_does_not_wait_for_a_terminating_worker() -> None:
    cluster = running(roles=[{"name": "worker", "replicas": 3, "minReplicas": 2}])
    cluster.pod("job-worker-1", deleting=True).settle().wait(15).settle()
    assert cluster.job.status.reason == "Shrunk"


def test_pod_of_an_earlier_job_on_a_lost_node_is_force_deleted() -> None:
    cluster = running()
    node = on(cluster, "job-worker-1")
    for name in ("job-worker-1", "job-worker-2"):
        cluster.pod(name, owner_uid="another", deleting=True, node=node)
    cluster.silence(node, 20.0, agent_ready=False).step()
    assert cluster.plans[-1].requeue_after is not None and cluster.plans[-1].requeue_after <= 1
    assert {"job-worker-1", "job-worker-2"} <= cluster.pods.keys()
    cluster.wait(5).silence(node, 25.0, agent_ready=False).settle()
    assert all(pod.owner_uid == "uid-job" for pod in cluster.pods.values())
    assert cluster.job.status.phase is Phase.RUNNING


def test_foreign_pod_with_the_job_s_labels_is_not_deleted() -> None:
    cluster = running()
    node = on(cluster, "job-worker-1")
    cluster.pod("job-worker-1", owner_uid="another", deleting=True, annotations={})
    cluster.silence(node, 90.0, agent_ready=False).step()
    assert "job-worker-1" not in [deletion.name for deletion in cluster.plans[-1].deletions]


def test_living_kubelet_ends_a_strict_pod_before_its_replacement() -> None:
    cluster = ToyCluster(make_job(**OWN)).settle().train(5).settle().wait(10)
    node, uid = on(cluster, "job-worker-1"), cluster.pods["job-worker-1"].uid
    cluster.silence(node, 600.0, lease_seconds=5.0, agent_ready=False).settle()
    deletions = [pod for plan in cluster.plans for pod in plan.deletions]
    assert [(pod.uid, pod.grace_seconds) for pod in deletions] == [(uid, None)]
    assert cluster.pods["job-worker-1"].uid != uid and cluster.job.status.phase is Phase.RUNNING


def test_suspended_strict_job_leaves_no_pod_on_a_node_with_a_living_kubelet() -> None:
    cluster = ToyCluster(make_job(**OWN)).settle().train(5).settle().wait(10)
    cluster.silence(on(cluster, "job-worker-1"), 600.0, lease_seconds=5.0)
    cluster.spec(suspend=True).settle()
    assert cluster.job.status.phase is Phase.SUSPENDED and not cluster.pods


def test_steps_of_another_role_do_not_attest_a_node() -> None:
    roles = [{"name": "learner", "replicas": 2}, {"name": "actor", "replicas": 1}]
    cluster = ToyCluster(make_job(roles=roles), make_engine()).settle().train(5).settle().wait(10)
    node, uid = on(cluster, "job-actor-0"), cluster.pods["job-actor-0"].uid
    cluster.silence(node, 20.0).train(6)
    assert nodes.lost(cluster.observed()) and cluster.settle().pods["job-actor-0"].uid != uid
    node, uid = on(cluster, "job-learner-1"), cluster.pods["job-learner-1"].uid
    cluster.wait(10).silence(node, 20.0).train(7)
    assert not nodes.lost(cluster.observed())


def test_node_deletion_does_not_uncount_an_older_error() -> None:
    cluster = running()
    cluster.exit(0, 1, ended=cluster.now.timestamp()).settle()
    assert cluster.job.status.restarts.counted == 1
    cluster.wait(1800).train(9).settle()
    node = on(cluster, "job-worker-1")
    cluster.nodes[node] = NodeView(node, exists=False)
    restarts = cluster.settle().job.status.restarts
    assert (restarts.total, restarts.counted) == (2, 1)


def test_foreground_deletion_of_a_job_does_not_wait_for_a_dead_kubelet() -> None:
    cluster = running()
    node, uid = on(cluster, "job-worker-1"), cluster.pods["job-worker-1"].uid
    cluster.silence(node, 6.0, agent_ready=False)
    deleted = cluster.job.model_copy(deep=True)
    deleted.metadata.deletion_timestamp = NOW
    cluster.pod("job-worker-1", deleting=True)
    made = plan(replace(cluster.observed(), job=deleted), NOW)
    assert [(pod.uid, pod.grace_seconds) for pod in made.deletions] == [(uid, 0)]
    assert made.status is None and not made.manifests
