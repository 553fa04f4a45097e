"""Tests of whole lives of a job on the toy cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.workers.blame import CONTAINER_SECONDS
from convoy_crds.trainingjob_status import Phase


@pytest.fixture
def running() -> ToyCluster:
    cluster = ToyCluster(make_job(), make_engine()).settle()
    assert cluster.job.status.phase is Phase.RUNNING
    return cluster


def test_job_starts_and_succeeds(running: ToyCluster) -> None:
    status = running.job.status
    assert (status.incarnation, status.ready, status.restarts.total) == (1, "2/2", 0)
    assert running.condition["Running"] == ("True", "Training")
    running.rank(0, step=10, total_steps=10).rank(1, step=10, total_steps=10).exit_all().settle()
    assert running.job.status.phase is Phase.SUCCEEDED
    assert running.condition["Complete"] == ("True", "Completed")
    assert running.condition["Running"][0] == "False"
    assert running.job.status.progress is not None and running.job.status.progress.percent == 100
    assert {pod.phase for pod in running.pods.values()} == {"Succeeded"}


def test_port_is_requested_before_slots_are_assigned() -> None:
    cluster = ToyCluster(make_job(), make_engine())
    kinds: list[str] = []
    for _ in range(6):
        kinds += [type(command).__name__ for command in cluster.step().commands]
    assert kinds == ["PickPort", "Assign", "Assign"]


def test_the_incarnation_is_stored_before_any_command_names_it() -> None:
    cluster = ToyCluster(make_job(), make_engine())
    for _ in range(6):
        before = cluster.job.status.incarnation
        made = cluster.step()
        if made.commands and made.status and made.status.get("incarnation") != before:
            assert made.status_first


@pytest.mark.parametrize(
    ("code", "facts", "reason", "counted"),
    [
        (1, {"stderr": "boom"}, "RankFailed", 1),
        (0, {"signal": 9}, "RankKilled", 1),
        (0, {"signal": 9, "oom": True}, "OutOfMemory", 1),
        (0, {"signal": 6, "hung": True}, "RankHung", 1),
        (75, {}, "Preempted", 1),
        (76, {}, "PeerLost", 1),
    ],
)
def test_a_failed_rank_restarts_the_ranks_in_the_same_pods(
    running: ToyCluster, code: int, facts: dict[str, object], reason: str, counted: int
) -> None:
    before = running.uids
    running.exit(1, code, **facts).step()
    status = running.job.status
    assert (status.phase, status.reason) == (Phase.RESTARTING, reason)
    assert (status.restarts.total, status.restarts.counted) == (1, counted)
    assert status.restarts.last is not None and status.restarts.last.rank == 1
    running.settle()
    assert running.job.status.phase is Phase.RUNNING
    assert (running.job.status.incarnation, running.uids) == (2, before)
    assert "Restarting" not in running.condition


@pytest.mark.parametrize(
    ("code", "facts", "reason"),
    [
        (10, {}, "ParamsRefused"),
        (20, {}, "DataError"),
        (127, {"command_not_found": True}, "CommandNotFound"),
    ],
)
def test_permanent_error_fails_the_job_without_a_restart(
    running: ToyCluster, code: int, facts: dict[str, object], reason: str
) -> None:
    running.exit(0, code, **facts).settle()
    assert (running.job.status.phase, running.job.status.reason) == (Phase.FAILED, reason)
    assert running.job.status.restarts.total == 0
    assert {pod.phase for pod in running.pods.values()} == {"Failed"}


def test_culprit_is_blamed_instead_of_its_peers(running: ToyCluster) -> None:
    running.exit(0, 76, stderr="peer closed").exit(1, 1, stderr="ValueError: boom").step()
    assert running.job.status.reason == "RankFailed"
    assert "ValueError: boom" in running.job.status.message


def test_kubelet_report_on_an_ended_container_is_awaited(running: ToyCluster) -> None:
    """A rank loses its peer, and the launcher of the peer has disconnected. The job waits until the kubelet
    reports the cause, out of memory. With memory.oom.group, no other component knows this cause.
    """
    pod = running.pods["job-worker-1"]
    running.exit(0, 76, stderr="Connection reset by peer", ended=running.now.timestamp())
    running.views[pod.uid] = replace(running.views[pod.uid], launcher_connected=False)
    for _ in range(2):
        running.step()
        assert running.job.status.restarts.total == 0
        running.wait(2)
    running.pod("job-worker-1", phase="Failed", exit_code=137, termination_reason="OOMKilled").step()
    last = running.job.status.restarts.last
    assert last is not None and (last.reason, last.counted) == ("ContainerOutOfMemory", True)


def test_fault_without_a_kubelet_report_is_handled_after_a_timeout(running: ToyCluster) -> None:
    pod = running.pods["job-worker-1"]
    running.exit(0, 76, ended=running.now.timestamp())
    running.views[pod.uid] = replace(running.views[pod.uid], launcher_connected=False)
    running.step()
    running.wait(CONTAINER_SECONDS).step()
    assert running.job.status.restarts.last is not None
    assert running.job.status.restarts.last.reason == "PeerLost"


def test_a_lost_pod_is_replaced_alone_and_does_not_count(running: ToyCluster) -> None:
    keep = running.uids[0]
    running.lose("job-worker-1").settle().wait(1).settle()
    status = running.job.status
    assert (status.phase, status.incarnation) == (Phase.RUNNING, 2)
    assert (status.restarts.total, status.restarts.counted) == (1, 0)
    assert running.uids[0] == keep
    assert len(running.pods) == 2


def test_externally_replaced_pod_starts_a_new_incarnation(running: ToyCluster) -> None:
    pod = running.pods["job-worker-1"]
    view = running.views[pod.uid]
    running.lose("job-worker-1")
    running.pods["job-worker-1"] = replace(pod, uid="other")
    running.views["other"] = replace(view, pod_uid="other", incarnation=0, ranks=())
    running.settle().wait(1).settle()
    assert (running.job.status.phase, running.job.status.incarnation) == (Phase.RUNNING, 2)


def test_terminating_pod_is_awaited_then_replaced(running: ToyCluster) -> None:
    running.pod("job-worker-1", deleting=True).settle()
    assert running.job.status.phase is Phase.RESTARTING
    assert len(running.pods) == 2, "the name is taken until the old pod is gone"
    running.wait(1).lose("job-worker-1").settle()
    assert running.job.status.phase is Phase.RUNNING
    assert running.job.status.restarts.total == 1


def test_the_budget_ends_a_crash_loop_and_shows_the_last_stderr() -> None:
    cluster = ToyCluster(make_job(recovery={"maxRestarts": 3}), make_engine()).settle()
    for _ in range(20):
        if cluster.job.status.phase is Phase.FAILED:
            break
        cluster.exit(0, 1, stderr="KeyError: 'x'").wait(61).settle()
    status = cluster.job.status
    assert (status.phase, status.reason, status.restarts.counted) == (Phase.FAILED, "MaxRestartsExceeded", 3)
    assert "KeyError: 'x'" in status.message


def test_restarts_that_left_the_window_are_forgiven() -> None:
    cluster = ToyCluster(make_job(recovery={"maxRestarts": 1, "windowSeconds": 100}), make_engine()).settle()
    for _ in range(4):
        cluster.exit(0, 1).settle().wait(101).settle()
        assert cluster.job.status.phase is Phase.RUNNING
    assert cluster.job.status.restarts.counted == 4


def test_restarts_are_spaced_out() -> None:
    cluster = ToyCluster(make_job(), make_engine()).settle()
    pauses = []
    for _ in range(5):
        cluster.exit(0, 1)
        waited = 0.0
        while cluster.job.status.phase is not Phase.RUNNING or waited == 0:
            made = cluster.settle().plans[-1]
            if cluster.job.status.phase is Phase.RUNNING:
                break
            assert made.requeue_after is not None
            waited += made.requeue_after
            cluster.wait(made.requeue_after)
        pauses.append(round(waited))
    assert pauses == [0, 1, 2, 4, 8]


def test_incarnation_starts_above_the_highest_that_an_agent_reports() -> None:
    cluster = ToyCluster(make_job(), make_engine())
    cluster.step()
    for uid, view in cluster.views.items():
        cluster.views[uid] = replace(view, incarnation=7)
    cluster.settle()
    assert cluster.job.status.incarnation == 8


def test_suspend_removes_pods_and_resume_forms_a_later_incarnation(running: ToyCluster) -> None:
    running.spec(suspend=True).settle()
    status = running.job.status
    assert (status.phase, running.pods, status.start_time) == (Phase.SUSPENDED, {}, None)
    assert running.condition["Suspended"] == ("True", "Suspended")
    running.wait(5).spec(suspend=False).settle()
    assert (running.job.status.phase, running.job.status.incarnation) == (Phase.RUNNING, 2)
    assert "Suspended" not in running.condition
    assert running.job.status.restarts.total == 0


def deletion_grace(cluster: ToyCluster) -> dict[str, int | None]:
    """Return the grace periods of the last plan's deletions, by pod."""
    return {deletion.name: deletion.grace_seconds for deletion in cluster.plans[-1].deletions}


def test_suspended_pods_that_had_ranks_keep_their_grace_period(running: ToyCluster) -> None:
    running.spec(suspend=True).step()
    assert deletion_grace(running) == {"job-worker-0": None, "job-worker-1": None}


def test_suspended_pods_without_ranks_get_a_short_grace_period(running: ToyCluster) -> None:
    begun = ToyCluster(make_job(), make_engine())
    begun.step()
    begun.spec(suspend=True).step()
    assert deletion_grace(begun) == {"job-worker-0": 1, "job-worker-1": 1}
    del running.pods["job-worker-1"]
    running.step()
    assert not running.job.status.formed and "job-worker-1" in running.pods
    running.spec(suspend=True).step()
    assert deletion_grace(running) == {"job-worker-0": None, "job-worker-1": 1}


def test_job_created_suspended_creates_no_pod() -> None:
    cluster = ToyCluster(make_job(suspend=True), make_engine()).settle()
    assert (cluster.job.status.phase, cluster.pods) == (Phase.SUSPENDED, {})


def test_active_deadline_fails_the_job_and_restarts_on_resume() -> None:
    cluster = ToyCluster(make_job(activeDeadlineSeconds=60), make_engine()).settle()
    assert cluster.plans[-1].requeue_after == pytest.approx(60)
    cluster.wait(59).spec(suspend=True).settle().wait(100).spec(suspend=False).settle()
    assert cluster.job.status.phase is Phase.RUNNING
    cluster.wait(60).settle()
    assert (cluster.job.status.phase, cluster.job.status.reason) == (Phase.FAILED, "DeadlineExceeded")


def test_finished_job_is_deleted_after_its_ttl(running: ToyCluster) -> None:
    running.spec(ttlSecondsAfterFinished=30).exit_all().settle()
    assert not running.deleted
    running.wait(30).step()
    assert running.deleted


def test_a_terminal_phase_is_sticky(running: ToyCluster) -> None:
    running.exit_all().settle()
    for name in list(running.pods):
        running.lose(name)
    running.spec(suspend=True).wait(1000).settle()
    assert running.job.status.phase is Phase.SUCCEEDED
    assert running.pods == {}


def test_pod_whose_launcher_does_not_exit_is_deleted(running: ToyCluster) -> None:
    running.drop_commands = True
    running.exit_all().step()
    assert running.job.status.phase is Phase.SUCCEEDED and len(running.pods) == 2
    running.wait(31).step()
    assert running.pods == {}


def test_success_of_the_deciding_role_is_enough() -> None:
    roles = [{"name": "actor", "replicas": 1}, {"name": "learner", "replicas": 1}]
    cluster = ToyCluster(make_job(roles=roles, success="learner"), make_engine()).settle()
    cluster.exit(0).settle()
    assert cluster.job.status.phase is Phase.RUNNING
    cluster.exit(1).settle()
    assert cluster.job.status.phase is Phase.SUCCEEDED


def test_job_of_another_manager_is_not_reconciled() -> None:
    cluster = ToyCluster(make_job(managedBy="kueue.x-k8s.io/multikueue"), make_engine()).settle()
    assert (cluster.job.status.phase, cluster.pods) == (None, {})


def test_a_changed_restart_id_forms_a_later_incarnation_once(running: ToyCluster) -> None:
    before = running.uids
    running.spec(recovery={"restartId": "after-data-fix"}).settle().wait(1).settle()
    status = running.job.status
    assert (status.phase, status.incarnation, running.uids) == (Phase.RUNNING, 2, before)
    assert (status.restarts.total, status.restarts.counted) == (1, 0)


def test_stale_report_of_a_handled_fault_is_not_counted_again(running: ToyCluster) -> None:
    running.wait(5).pod("job-worker-1", phase="Failed", exit_code=1)
    stale = running.pods["job-worker-1"]
    running.step()
    assert running.job.status.restarts.counted == 1
    running.pods["job-worker-1"] = stale
    running.step()
    assert running.job.status.restarts.counted == 1


def test_a_pod_that_fails_before_it_forms_counts() -> None:
    cluster = ToyCluster(make_job(recovery={"maxRestarts": 2}), make_engine())
    cluster.launchers = False
    for _ in range(3):
        cluster.wait(2).step()
        cluster.wait(2).pod("job-worker-0", phase="Failed", exit_code=1).step()
    assert (cluster.job.status.phase, cluster.job.status.reason) == (Phase.FAILED, "MaxRestartsExceeded")


def test_preempted_rank_of_a_terminating_pod_does_not_count(running: ToyCluster) -> None:
    running.pod("job-worker-1", deleting=True).exit(1, 75).settle()
    assert (running.job.status.restarts.total, running.job.status.restarts.counted) == (1, 0)


@pytest.mark.parametrize(
    ("code", "signal", "late"),
    [(143, 15, False), (143, 0, False), (137, 9, False), (143, 15, True), (143, 0, True)],
)
def test_rank_that_ends_with_its_deleted_pod_is_not_blamed(
    running: ToyCluster, code: int, signal: int, late: bool
) -> None:
    if late:  # The deletion is observed only after the end of the rank.
        running.exit(1, code, signal=signal, ended=running.now.timestamp()).settle()
        assert running.job.status.restarts.total == 0
    running.pod("job-worker-1", deleting=True)
    if not late:
        running.exit(1, code, signal=signal, ended=running.now.timestamp())
    running.settle()
    last = running.job.status.restarts.last
    assert last is not None and (last.reason, last.rank) == ("PodDeleted", None)
    assert running.job.status.restarts.counted == 0 and not running.job.status.offenders


def test_rank_with_sigterm_in_a_remaining_pod_counts_as_killed(running: ToyCluster) -> None:
    running.exit(1, 143, signal=15, ended=running.now.timestamp()).settle().wait(0.6).settle()
    last = running.job.status.restarts.last
    assert last is not None and last.reason == "RankKilled"


def test_no_exit_code_causes_restarts_without_back_off(running: ToyCluster) -> None:
    for _ in range(50):
        if running.job.status.phase in (Phase.RUNNING, Phase.RESTARTING):
            running.exit(0, 75).settle()
    assert running.job.status.restarts.total <= 2, "no time has passed"


def test_succeeded_pod_is_replaced_when_the_job_restarts(running: ToyCluster) -> None:
    running.exit(0).pod("job-worker-0", phase="Succeeded", exit_code=0).step()
    running.exit(1, 1).settle()
    assert running.job.status.phase is Phase.RUNNING
    assert {pod.phase for pod in running.pods.values()} == {"Running"}


def test_a_dead_first_container_beside_a_live_sidecar_is_a_lost_pod(running: ToyCluster) -> None:
    running.pod("job-worker-1", exit_code=137, termination_reason="OOMKilled").settle()
    assert running.job.status.phase is Phase.RUNNING
    assert running.job.status.restarts.last is not None
    assert running.job.status.restarts.last.reason == "ContainerOutOfMemory"
    assert {pod.exit_code for pod in running.pods.values()} == {None}


def test_an_engine_that_changed_meanwhile_replaces_all_pods_together(running: ToyCluster) -> None:
    before = set(running.uids)
    running.engine = make_engine(image="convoy/workloads:next")
    running.settle()
    assert set(running.uids) == before, "a running job keeps what it runs"
    running.exit(0, 1).settle()
    assert running.job.status.phase is Phase.RUNNING
    assert not before & set(running.uids)


def test_terminating_pod_of_an_earlier_job_of_the_same_name_is_awaited() -> None:
    cluster = ToyCluster(make_job(), make_engine())
    cluster.step()
    cluster.pod("job-worker-0", owner_uid="namesake", deleting=True).settle()
    assert cluster.job.status.reason == "WaitingForPods"
    cluster.lose("job-worker-0").settle()
    assert cluster.job.status.phase is Phase.RUNNING


def test_ranks_with_code_0_after_a_termination_request_are_not_complete() -> None:
    cluster = ToyCluster(make_job(), make_engine()).settle().train(5).settle()
    begin = cluster.now.timestamp()
    for pod in list(cluster.pods):
        cluster.pod(pod, deleting=True, leaving_since=begin, leaves_by=begin + 30)
    for rank in range(4):
        cluster.exit(rank, 0, ended=begin + 2)
    cluster.settle()
    assert cluster.job.status.phase is Phase.RESTARTING


def test_ranks_with_code_0_before_the_pod_deletion_are_complete() -> None:
    cluster = ToyCluster(make_job(), make_engine()).settle().train(5).settle()
    begin = cluster.now.timestamp()
    for rank in range(4):
        cluster.exit(rank, 0, ended=begin - 2)
    for pod in list(cluster.pods):
        cluster.pod(pod, deleting=True, leaving_since=begin, leaves_by=begin + 30)
    cluster.settle()
    assert cluster.job.status.phase is Phase.SUCCEEDED
