"""Tests of ranks that exit with code 0 too early: when this is the cause of a fault, when it is not, and
the messages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_crds.trainingjob_status import LastRestart, Phase

CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:20905"


def running(roles: list[dict[str, Any]] | None = None, **spec: Any) -> ToyCluster:
    wanted = roles or [{"name": "worker", "replicas": 2}]
    return ToyCluster(make_job(roles=wanted, **spec), make_engine()).settle()


def uneven(
    cluster: ToyCluster, early: int = 1, step: int | None = 30, code: int = 76, **facts: Any
) -> ToyCluster:
    """Let one rank exit with code 0 after a step. All other running ranks lose their peer 0.1 s later."""
    now = cluster.now.timestamp()
    cluster.rank(early, step=step, time=now).exit(early, 0, ended=now, finished=now)
    for view in list(cluster.views.values()):
        for rank in view.ranks:
            if rank.state == "RUNNING":
                cluster.rank(rank.rank, step=step, time=now, **facts)
                cluster.exit(rank.rank, code, ended=now + 0.1, stderr=CLOSED)
    return cluster


def handled_restart(cluster: ToyCluster) -> LastRestart:
    cluster.settle().wait(1).settle()
    last = cluster.job.status.restarts.last
    assert last is not None
    return last


def again(cluster: ToyCluster) -> None:
    """Handle the fault, wait until the back-off is over, and let the job run again."""
    handled_restart(cluster)
    cluster.wait(120).settle()


def test_early_end_names_rank_node_step_and_remedy() -> None:
    cluster = running()
    node = cluster.pods["job-worker-1"].node
    last = handled_restart(uneven(cluster))
    assert (last.reason, last.rank, last.node, last.exit_code, last.step) == ("EndedEarly", 1, node, 0, 30)
    assert last.message.startswith(
        f"rank 1 on node {node} exited with code 0 after step 30 while other ranks went on (uneven inputs?)"
    )
    assert "drop_last" in last.message and "join()" in last.message
    assert last.message.endswith(f"Then rank 0 failed: {CLOSED}"), "what the others wrote is not lost"
    assert last.counted and cluster.job.status.offenders == []


def test_third_early_end_at_the_same_step_of_any_rank_fails_the_job() -> None:
    cluster = running([{"name": "worker", "replicas": 3}])
    for early in (1, 2, 1):
        assert cluster.job.status.phase is Phase.RUNNING
        again(uneven(cluster, early))
    status = cluster.job.status
    assert (status.phase, status.reason, status.restarts.total) == (Phase.FAILED, "RepeatedError", 2)
    assert "exited with code 0 after step 30" in status.message


def test_early_end_at_another_step_is_another_error() -> None:
    cluster = running()
    for step in (30, 31, 30, 31):
        again(uneven(cluster, step=step))
    assert cluster.job.status.phase is Phase.RUNNING


def test_repeated_early_ends_before_the_first_step_fail_the_job() -> None:
    cluster = running()
    for _ in range(3):
        again(uneven(cluster, step=None))
    status = cluster.job.status
    assert (status.phase, status.reason) == (Phase.FAILED, "RepeatedError")
    assert "before its first step" in status.message


def test_message_names_a_bounded_number_of_ranks() -> None:
    cluster = running([{"name": "worker", "replicas": 10}])
    now = cluster.now.timestamp()
    for rank in range(1, 9):
        cluster.rank(rank, step=30 if rank > 1 else 29).exit(rank, 0, ended=now)
    message = handled_restart(uneven(cluster, 9)).message
    assert message.startswith("rank 1 on") and "after step 29" in message
    assert (
        "step 29, as did ranks 2, 3, 4, 5, 6 and 3 more, while other ranks went on (uneven inputs?)"
        in message
    )


def test_total_is_named_if_ranks_report_it() -> None:
    """Rank 1 ends after its total of 30 steps, but rank 0 has a total of 40. The message names 40, the
    total that rank 1 missed.
    """
    cluster = running().rank(1, total_steps=30)
    last = handled_restart(uneven(cluster, total_steps=40))
    assert (last.reason, last.rank) == ("EndedEarly", 1) and "after step 30 of 40" in last.message


@pytest.mark.parametrize(("step", "blamed"), [(30, 1), (34, 0)])
def test_unexplained_error_is_an_echo_only_at_the_step_of_the_early_end(step: int, blamed: int) -> None:
    """Rank 1 ends early at step 30, and rank 0 fails without mention of a peer. At step 30 this failure is
    an echo of rank 1's end. At step 34 it is not, because rank 0 went on without rank 1.
    """
    cluster = running()
    now = cluster.now.timestamp()
    cluster.rank(1, step=30, total_steps=40).exit(1, 0, ended=now)
    cluster.rank(0, step=step, total_steps=40).exit(0, 1, ended=now + 1, stderr="training failed")
    last = handled_restart(cluster)
    assert (last.reason, last.rank) == ("EndedEarly" if blamed else "RankFailed", blamed)
    assert "training failed" in last.message


def test_rank_with_all_its_steps_is_not_early() -> None:
    """Rank 1 ends after all its 30 steps, and rank 0 fails later, while it saves and evaluates. Rank 0 is
    blamed.
    """
    cluster = running().rank(1, total_steps=30)
    last = handled_restart(uneven(cluster, total_steps=30))
    assert (last.reason, last.rank) == ("PeerLost", 0)


def test_rank_may_end_while_other_ranks_continue() -> None:
    cluster = running().train(30)
    cluster.exit(1, 0, ended=cluster.now.timestamp()).settle().wait(3600).train(90).settle()
    assert (cluster.job.status.phase, cluster.job.status.restarts.total) == (Phase.RUNNING, 0)
    cluster.exit(0, 0).settle()
    assert cluster.job.status.phase is Phase.SUCCEEDED


def test_job_succeeds_if_all_ranks_succeed_after_different_steps() -> None:
    cluster = running()
    now = cluster.now.timestamp()
    cluster.rank(0, step=40).rank(1, step=30).exit(1, 0, ended=now).exit(0, 0, ended=now + 9).settle()
    assert cluster.job.status.phase is Phase.SUCCEEDED


def test_the_early_end_is_reported_after_its_echo() -> None:
    cluster = running()
    now = cluster.now.timestamp()
    cluster.exit(0, 76, ended=now, stderr=CLOSED).settle()
    assert cluster.job.status.restarts.last is None
    cluster.wait(0.3).rank(1, step=30).exit(1, 0, ended=now - 0.1)
    assert handled_restart(cluster).reason == "EndedEarly"


def test_early_end_waits_for_an_earlier_cause() -> None:
    cluster = running([{"name": "worker", "replicas": 3}]).train(30)
    now = cluster.now.timestamp()
    cluster.exit(1, 0, ended=now - 60).exit(0, 76, ended=now, stderr=CLOSED).settle()
    assert cluster.job.status.restarts.last is None
    cluster.wait(0.3).exit(2, 137, signal=9, ended=now - 0.1)
    last = handled_restart(cluster)
    assert (last.reason, last.rank) == ("RankKilled", 2)


def test_early_end_is_unknown_while_the_agent_is_absent() -> None:
    cluster = running()
    pod = cluster.pods["job-worker-1"]
    uid = pod.uid
    cluster.views[uid] = replace(cluster.views[uid], agent_away=True, launcher_connected=False)
    cluster.exit(0, 76, ended=cluster.now.timestamp(), stderr=CLOSED)
    assert handled_restart(cluster).reason == "PeerLost"


def test_succeeded_pod_counts_as_an_early_end_of_its_ranks() -> None:
    """While an agent is away, its launcher ends the pod with code 0, and no report on its rank exists. The
    rank counts as ended early.
    """
    cluster = running()
    pod = cluster.pods["job-worker-1"]
    cluster.pod("job-worker-1", phase="Succeeded", exit_code=0)
    cluster.views.pop(pod.uid)
    cluster.exit(0, 76, ended=cluster.now.timestamp(), stderr=CLOSED)
    last = handled_restart(cluster)
    assert (last.reason, last.rank) == ("EndedEarly", 1)


TWO = [{"name": "actor", "replicas": 2}, {"name": "learner", "replicas": 2}]
"""Two roles: ranks 0 and 1 are actors, ranks 2 and 3 are learners."""


@pytest.mark.parametrize(
    ("success", "done", "expected"),
    [
        # Helpers beside the deciding role end early by design, so they are not blamed.
        ("learner", [0], ("PeerLost", 3)),
        ("learner", [0, 1], ("PeerLost", 3)),
        ("learner", [2], ("EndedEarly", 2)),
        ("learner", [0, 2], ("EndedEarly", 2)),
        ("AllRolesComplete", [0], ("EndedEarly", 0)),
        # All ranks of the role have completed, so none of them ended early.
        ("AllRolesComplete", [0, 1], ("PeerLost", 3)),
    ],
)
def test_roles_are_judged_separately(success: str, done: list[int], expected: tuple[str, int]) -> None:
    cluster = running(TWO, success=success).train(30)
    now = cluster.now.timestamp()
    for rank in done:
        cluster.exit(rank, 0, ended=now)
    cluster.exit(3, 76, ended=now + 0.1, stderr=CLOSED)
    last = handled_restart(cluster)
    assert (last.reason, last.rank) == expected


@pytest.mark.parametrize(
    "facts", [{"deleting": True}, {"deleting": True, "disruption": "PreemptionByScheduler"}]
)
def test_rank_that_ends_after_a_pod_deletion_is_not_early(facts: dict[str, Any]) -> None:
    cluster = running().train(30)
    cluster.pod("job-worker-1", leaving_since=cluster.now.timestamp() - 1, **facts)
    last = handled_restart(uneven(cluster))
    assert last.reason in ("PodDeleted", "PodPreempted") and not last.counted


def test_ranks_of_a_replaced_incarnation_are_ignored() -> None:
    cluster = running().train(30)
    uid = cluster.pods["job-worker-1"].uid
    old = cluster.views[uid]
    cluster.exit(0, 137, signal=9).settle()
    assert cluster.job.status.incarnation == 2
    cluster.views[uid] = replace(old, ranks=tuple(replace(one, state="EXITED") for one in old.ranks))
    cluster.exit(0, 76, ended=cluster.now.timestamp(), stderr=CLOSED).wait(5).step()
    last = cluster.job.status.restarts.last
    assert last is not None and last.reason != "EndedEarly"


def test_ranks_of_a_shrunk_job_map_to_its_present_pods() -> None:
    cluster = running([{"name": "worker", "replicas": 3, "minReplicas": 2}]).train(30)
    cluster.schedulable = False
    cluster.lose("job-worker-0").settle().wait(600).settle()
    assert cluster.job.status.roles[0].absent == [0] and cluster.job.status.phase is Phase.RUNNING
    last = handled_restart(uneven(cluster, early=1))
    assert (last.reason, last.pod) == ("EndedEarly", "job-worker-2")


def test_a_suspended_job_has_no_early_ends() -> None:
    cluster = running().train(30).spec(suspend=True)
    now = cluster.now.timestamp()
    cluster.exit(1, 0, ended=now).exit(0, 76, ended=now, stderr=CLOSED).settle()
    assert (cluster.job.status.phase, cluster.job.status.restarts.total) == (Phase.SUSPENDED, 0)


def test_early_end_of_one_of_several_processes_in_a_pod() -> None:
    cluster = running([{"name": "worker", "replicas": 1, "processesPerReplica": 2}]).train(30)
    last = handled_restart(uneven(cluster))
    assert (last.reason, last.rank, last.pod) == ("EndedEarly", 1, "job-worker-0")


def test_early_end_explains_the_hang_of_all_other_ranks() -> None:
    cluster = running([{"name": "worker", "replicas": 3}]).train(30)
    now = cluster.now.timestamp()
    cluster.exit(1, 0, ended=now).settle().wait(600)
    for rank in (0, 2):
        cluster.exit(rank, 134, signal=6, hung=True, ended=cluster.now.timestamp(), time=now)
    last = handled_restart(cluster)
    assert (last.reason, last.rank) == ("EndedEarly", 1) and "stopped making steps" in last.message
    assert cluster.job.status.offenders == []


def test_rank_that_hangs_after_its_last_step_is_named_by_its_stderr() -> None:
    cluster = running().train(30)
    now = cluster.now.timestamp()
    where = "no end for 600 s after step 30; its main thread is at /app/train.py:88 in upload"
    cluster.exit(1, 0, ended=now).rank(0, finished=now).settle().wait(600)
    cluster.exit(0, 134, signal=6, hung=True, ended=cluster.now.timestamp(), stderr=where)
    node = cluster.pods["job-worker-0"].node
    last = handled_restart(cluster)
    assert (last.reason, last.rank) == ("RankNotEnding", 0)
    assert last.message.startswith(
        f"rank 0 on node {node} made its last step 30 but did not exit within 600 s "
        "(spec.recovery.hangSeconds); its main thread is at /app/train.py:88 in upload"
    )
    assert cluster.job.status.offenders == []
