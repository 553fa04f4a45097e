"""Tests of back-offs, which keep a job from restarting or creating pods in a tight loop, and of the limits
of its waits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convoy_controllers.commands import Assign
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.views import ContainerEnd
from convoy_crds.trainingjob_status import Phase

SAVES = {"tiers": {"local": {}}}


def made(**spec: Any) -> ToyCluster:
    return ToyCluster(make_job(**{"roles": [{"name": "worker", "replicas": 3}], **spec}), make_engine())


def running(**spec: Any) -> ToyCluster:
    return made(**spec).settle().train(5).settle().wait(60)


def on(cluster: ToyCluster, pod: str) -> str:
    node = cluster.pods[pod].node
    assert node is not None
    return node


def fails(cluster: ToyCluster, pod: str, **facts: Any) -> ToyCluster:
    return cluster.pod(pod, phase="Failed", **{"exit_code": 1, **facts})


def restarts(cluster: ToyCluster) -> tuple[int, int]:
    found = cluster.job.status.restarts
    return found.total, found.counted


def back_off(cluster: ToyCluster) -> float:
    """Return the seconds between the last restart and the time at which the next incarnation may form."""
    last, not_before = cluster.job.status.restarts.last, cluster.job.status.internal.restarts.not_before
    assert last is not None
    return (not_before - last.at).total_seconds() if not_before else 0.0


def test_pods_that_fail_before_the_first_formation_are_backed_off() -> None:
    cluster = made(recovery={"maxRestarts": 4})
    cluster.launchers = False
    cluster.settle()
    waits = []
    while cluster.job.status.phase is not Phase.FAILED:
        fails(cluster, "job-worker-1").settle()
        wait = 0.0
        while "job-worker-1" not in cluster.pods and cluster.job.status.phase is not Phase.FAILED:
            pause = cluster.plans[-1].requeue_after
            assert pause is not None and pause > 0
            assert cluster.condition["Running"] == ("False", "BackOff")
            wait += pause
            cluster.wait(pause).settle()
        waits.append(wait)
    assert waits == [0.0, 1.0, 2.0, 4.0, 0.0]
    assert cluster.job.status.reason == "MaxRestartsExceeded" and restarts(cluster) == (4, 4)


def test_failure_before_the_formation_is_handled_once() -> None:
    cluster = made()
    cluster.launchers = False
    cluster.settle()
    fails(cluster, "job-worker-0")
    fails(cluster, "job-worker-1").settle()
    assert restarts(cluster) == (1, 1) and cluster.job.status.incarnation == 1
    assert not any(pod.phase == "Failed" for pod in cluster.pods.values())
    # The failed pod belongs to the previous attempt. It is replaced, and does not count against the program.
    fails(cluster, "job-worker-2").settle()
    assert restarts(cluster) == (1, 1)
    fails(cluster, "job-worker-2").settle()
    assert restarts(cluster) == (2, 2)


def test_unadmitted_pod_costs_no_restart_and_blames_the_node() -> None:
    cluster = made()
    cluster.launchers = False
    cluster.settle()
    node = on(cluster, "job-worker-1")
    facts = {"exit_code": None, "termination_reason": "OutOfcpu", "termination_message": "no room"}
    fails(cluster, "job-worker-1", **facts).settle()
    last = cluster.job.status.restarts.last
    assert last is not None and restarts(cluster) == (1, 0)
    assert (last.reason, last.message) == (
        "PodNotAdmitted", f"node {node} did not admit pod job-worker-1: OutOfcpu: no room",
    )  # fmt: skip
    assert [one.node for one in cluster.job.status.offenders] == [node]


def test_successive_uncounted_restarts_are_backed_off() -> None:
    cluster = running()
    pauses = []
    for _ in range(9):
        cluster.lose("job-worker-1").settle()
        pause = back_off(cluster)
        pauses.append(pause)
        cluster.wait(pause).settle()
        assert cluster.job.status.phase is Phase.RUNNING
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    cluster.wait(120).lose("job-worker-1").settle()
    assert cluster.job.status.internal.restarts.not_before is None


def test_init_container_failures_are_backed_off() -> None:
    cluster = made(recovery={"maxIdenticalErrors": 0})
    cluster.launchers = False
    cluster.settle()
    pauses = []
    for _ in range(4):
        fails(cluster, "job-worker-1", exit_code=None, failure=ContainerEnd("fetch", 6)).settle()
        last = cluster.job.status.restarts.last
        assert last is not None and last.reason == "InitContainerFailed"
        pauses.append(back_off(cluster))
        cluster.wait(pauses[-1]).settle()
    assert pauses == [10, 20, 40, 60]


def test_failed_absent_pod_is_recreated_once_a_minute() -> None:
    cluster = made(roles=[{"name": "worker", "replicas": 3, "minReplicas": 2}]).settle().train(5).settle()
    cluster.wait(30)
    cluster.launchers = False
    cluster.lose("job-worker-2").settle().wait(10).settle()
    assert cluster.job.status.roles[0].absent == [2]
    uid = cluster.pods["job-worker-2"].uid
    fails(cluster, "job-worker-2").settle()
    assert cluster.pods["job-worker-2"].uid == uid
    wait = cluster.plans[-1].requeue_after
    assert wait == pytest.approx(50)
    cluster.wait(wait).settle()
    assert cluster.pods["job-worker-2"].uid != uid
    assert cluster.job.status.restarts.total == 1 and cluster.job.status.phase is Phase.RUNNING


def test_forming_job_leaves_a_living_node_with_an_absent_agent() -> None:
    cluster = running()
    node, uid = on(cluster, "job-worker-1"), cluster.pods["job-worker-1"].uid
    cluster.exit(0, 1)
    cluster.silence(node, 29.0, pods_reachable=True, agent_ready=False).settle()
    assert cluster.job.status.phase is Phase.RESTARTING and cluster.pods["job-worker-1"].uid == uid
    cluster.wait(2).silence(node, 31.0, pods_reachable=True, agent_ready=False).settle()
    assert cluster.pods["job-worker-1"].uid != uid
    deletions = [pod for plan in cluster.plans for pod in plan.deletions]
    assert [pod.grace_seconds for pod in deletions] == [None], "its kubelet lives"
    assert cluster.job.status.phase is Phase.RUNNING


def test_running_job_stays_on_a_node_with_an_absent_agent() -> None:
    cluster = running()
    cluster.silence(on(cluster, "job-worker-1"), 300.0, pods_reachable=True, agent_ready=False).settle()
    assert cluster.job.status.phase is Phase.RUNNING and restarts(cluster) == (0, 0)


def test_replacement_of_a_pod_prefers_other_nodes_than_the_lost_one() -> None:
    cluster = running()
    node = on(cluster, "job-worker-1")
    cluster.silence(node, 6.0, agent_ready=True).step()
    (body,) = cluster.plans[-1].manifests
    (term,) = body["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    rule = {"key": "metadata.name", "operator": "NotIn", "values": [node]}
    assert term["preference"] == {"matchFields": [rule]}
    assert [pod.grace_seconds for pod in cluster.plans[-1].deletions] == [0]


def test_replacement_on_the_lost_node_is_replaced_after_a_back_off() -> None:
    cluster = running()
    node = on(cluster, "job-worker-1")
    cluster.silence(node, 6.0, agent_ready=True).step()
    cluster.pod("job-worker-1", node=node).settle()
    uid = cluster.pods["job-worker-1"].uid
    wait = cluster.plans[-1].requeue_after
    assert wait == pytest.approx(2) and cluster.job.status.restarts.total == 1
    cluster.wait(2).settle()
    assert cluster.pods["job-worker-1"].uid != uid


def test_node_loss_during_the_back_off_uncounts_its_echo() -> None:
    cluster = running()
    for rank in (0, 2):
        cluster.rank(rank, step=5)
    cluster.exit(2, 1, ended=cluster.now.timestamp()).settle().wait(1).settle().train(6).settle().wait(1)
    died = cluster.now.timestamp()
    cluster.exit(0, 1, ended=died).exit(2, 1, ended=died).settle()
    assert restarts(cluster) == (2, 2) and not cluster.job.status.formed
    node = on(cluster, "job-worker-1")
    cluster.wait(0.5).silence(node, 6.0, silent_since=died, agent_ready=False).settle()
    status = cluster.job.status
    assert status.restarts.last is not None and status.restarts.last.reason == "NodeLost"
    assert restarts(cluster) == (3, 1) and status.phase is Phase.RUNNING


def test_node_loss_during_a_restart_is_not_a_restart_of_its_own() -> None:
    cluster = running()
    cluster.launchers = False
    cluster.lose("job-worker-0").settle()
    assert not cluster.job.status.formed
    cluster.wait(60).silence(on(cluster, "job-worker-1"), 6.0, agent_ready=False).settle()
    assert restarts(cluster) == (1, 0)


def test_flapping_node_does_not_join_the_job() -> None:
    cluster = made(
        roles=[{"name": "worker", "replicas": 3, "minReplicas": 2}], checkpoint=SAVES
    ).settle().train(5).settle().wait(60)  # fmt: skip
    cluster.launchers = False
    cluster.lose("job-worker-2").settle().wait(10).settle()
    assert cluster.job.status.roles[0].absent == [2]
    cluster.launchers = True
    cluster.connect("job-worker-2").settle()
    cluster.wait(10).commit(20).settle()
    assert cluster.job.status.incarnation == 2, "it is back for ten seconds"
    cluster.wait(21).commit(30).settle()
    assert cluster.job.status.incarnation == 3


def test_regrowth_does_not_wait_for_absent_pods() -> None:
    cluster = made(
        roles=[{"name": "worker", "replicas": 4, "minReplicas": 2}], checkpoint=SAVES
    ).settle().train(5).settle().wait(60)  # fmt: skip
    cluster.launchers = False
    cluster.lose("job-worker-2").lose("job-worker-3").settle().wait(10).settle()
    assert cluster.job.status.roles[0].absent == [2, 3]
    cluster.connect("job-worker-2").settle().wait(31).commit(30).settle()
    status = cluster.job.status
    assert (status.incarnation, status.phase, status.roles[0].absent) == (3, Phase.RUNNING, [3])


STRICT = {"recovery": {"fencing": "Strict"}}


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, "Fencing"),
        ({"ready": False, "pods_reachable": True, "pods_replied": True}, "FencingAnswered"),
        ({"attested_by": frozenset({"node-0", "node-1", "node-2"})}, "FencingCompany"),
    ],
)
def test_strict_job_reports_the_awaited_event_once(facts: dict[str, Any], reason: str) -> None:
    cluster = running(**STRICT)
    node = on(cluster, "job-worker-1")
    cluster.silence(node, 6.0, agent_ready=False, **facts).settle()
    assert cluster.condition["Running"] == ("False", reason)
    cluster.plans.clear()
    for seconds in (7.0, 9.0):
        cluster.wait(1).silence(node, seconds, agent_ready=False, **facts).settle()
    assert cluster.condition["Running"] == ("False", reason)
    assert not [plan for plan in cluster.plans if plan.status is not None]


def members(cluster: ToyCluster) -> dict[int, int]:
    assignments = [one for plan in cluster.plans for one in plan.commands if isinstance(one, Assign)]
    return {one.slot: len(one.members) for one in assignments}


def test_members_are_sent_to_slot_0_and_to_all_slots_of_strict_jobs() -> None:
    assert members(running()) == {0: 3, 1: 1, 2: 1}
    assert members(running(**STRICT)) == {0: 3, 1: 3, 2: 3}


def test_deadline_of_pods_created_after_a_back_off_starts_at_creation() -> None:
    cluster = made(roles=[{"name": "worker", "replicas": 3, "minReplicas": 2}]).settle().train(5).settle()
    pause = 0.0
    while pause < 8:
        cluster.wait(pause).settle().train(cluster.now.minute + 20).settle().wait(60)
        fails(cluster, "job-worker-1").settle()
        pause = back_off(cluster)
        assert not cluster.job.status.roles[0].absent
    cluster.launchers = False
    cluster.wait(8).settle().wait(9).settle()
    assert cluster.job.status.phase is Phase.RESTARTING, "10 s from when its pod could be made"
    cluster.wait(1).settle()
    assert cluster.job.status.reason == "Shrunk"


def test_pod_that_waits_for_fencing_is_not_late() -> None:
    cluster = running(recovery={"fencing": "Strict", "scheduleSeconds": 10})
    node, uids = on(cluster, "job-worker-1"), cluster.uids
    for seconds in (6.0, 12.0, 18.0):
        cluster.wait(6).silence(node, seconds, agent_ready=False).settle()
    assert cluster.condition["Running"] == ("False", "Fencing") and cluster.uids == uids
    assert cluster.job.status.internal.pending.since is None


def test_ended_pod_on_a_stranded_node_is_force_deleted() -> None:
    cluster = running()
    node = on(cluster, "job-worker-1")
    cluster.exit(0, 1)
    cluster.silence(node, 31.0, pods_reachable=True, agent_ready=False)
    cluster.pod("job-worker-1", deleting=True).step()
    assert not cluster.plans[-1].deletions, "its ranks may still live"
    cluster.pod("job-worker-1", exit_code=143).step()
    assert [(deletion.name, deletion.grace_seconds) for deletion in cluster.plans[-1].deletions] == [
        ("job-worker-1", 0)
    ]


def test_absent_pod_on_a_lost_node_is_not_recreated_repeatedly() -> None:
    cluster = made(roles=[{"name": "worker", "replicas": 3, "minReplicas": 2}]).settle().train(5).settle()
    cluster.wait(60)
    node = on(cluster, "job-worker-1")
    cluster.schedulable = False
    cluster.silence(node, 6.0, agent_ready=True).settle()
    assert cluster.job.status.reason == "Shrunk"
    uid = cluster.pods["job-worker-1"].uid
    cluster.pod("job-worker-1", node=node).settle()
    assert cluster.pods["job-worker-1"].uid == uid
    assert cluster.plans[-1].requeue_after == pytest.approx(2)


def test_last_restart_of_a_budget_waits_for_an_explanation() -> None:
    cluster = running(recovery={"maxRestarts": 0})
    died = cluster.now.timestamp()
    cluster.exit(0, 1, ended=died).exit(2, 76, ended=died).settle()
    assert cluster.job.status.phase is Phase.RUNNING and restarts(cluster) == (0, 0)
    assert cluster.plans[-1].requeue_after == pytest.approx(7)
    node = on(cluster, "job-worker-1")
    cluster.wait(6).silence(node, 6.0, agent_ready=False).settle()
    assert cluster.job.status.phase is Phase.RUNNING and restarts(cluster) == (1, 0)


def test_job_fails_after_the_wait_without_an_explanation() -> None:
    cluster = running(recovery={"maxRestarts": 0})
    cluster.exit(0, 1, ended=cluster.now.timestamp()).settle().wait(7).settle()
    assert cluster.job.status.reason == "MaxRestartsExceeded"


def test_single_node_job_fails_without_a_wait_for_an_explanation() -> None:
    cluster = running(recovery={"maxRestarts": 0}, roles=[{"name": "worker", "replicas": 1}])
    cluster.exit(0, 1, ended=cluster.now.timestamp()).settle()
    assert cluster.job.status.reason == "MaxRestartsExceeded"


def test_status_from_a_backup_restarts_above_the_agents_incarnation() -> None:
    cluster = running()
    for uid, view in list(cluster.views.items()):
        cluster.views[uid] = replace(view, incarnation=7, port_incarnation=7)
    cluster.settle()
    last = cluster.job.status.restarts.last
    assert last is not None and (last.reason, last.counted) == ("StatusBehind", False)
    assert (cluster.job.status.incarnation, cluster.job.status.phase) == (8, Phase.RUNNING)
