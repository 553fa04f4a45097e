"""Tests of the scope of a restart, and of the limit for restarts that do not help."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.workers.policy import POLICIES
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob_status import Phase


def running(**recovery: Any) -> ToyCluster:
    job = make_job(roles=[{"name": "worker", "replicas": 3}], recovery={"maxRestarts": 100, **recovery})
    return ToyCluster(job, make_engine()).settle().train(5).settle()


def replaced(cluster: ToyCluster, before: list[str]) -> int:
    return sum(a != b for a, b in zip(cluster.uids, before, strict=True))


def test_repeated_restarts_without_progress_replace_more_pods() -> None:
    cluster = running()
    found = []
    for _ in range(4):
        before = cluster.uids
        cluster.exit(1, 137, signal=9).settle().wait(120).settle()
        found.append(replaced(cluster, before))
        assert cluster.job.status.phase is Phase.RUNNING
    assert found == [0, 1, 3, 3]


def test_step_beyond_the_furthest_resets_the_escalation() -> None:
    cluster = running()
    for step in (6, 7, 8, 9):
        before = cluster.uids
        cluster.train(step).settle().exit(1, 137, signal=9).settle().wait(120).settle()
        assert replaced(cluster, before) == 0


def test_repeated_steps_are_not_progress() -> None:
    cluster = running()
    cluster.train(50).settle().exit(1, 137, signal=9).settle().wait(120).settle()
    before = cluster.uids
    cluster.train(20).settle().exit(1, 137, signal=9).settle().wait(120).settle()
    assert replaced(cluster, before) == 1


def test_time_since_the_last_fault_resets_the_escalation() -> None:
    cluster = running()
    for _ in range(3):
        before = cluster.uids
        cluster.exit(1, 137, signal=9).settle().wait(700).settle()
        assert replaced(cluster, before) == 0


def test_every_restart_replaces_all_pods_if_in_place_is_off() -> None:
    cluster = running(inPlace=False)
    before = cluster.uids
    cluster.exit(1, 1).settle()
    assert replaced(cluster, before) == 3 and cluster.job.status.phase is Phase.RUNNING


def test_crash_between_decision_and_deletions_loses_neither() -> None:
    """The operator crashes after it stored the restart and before it deleted a pod. The stored status alone
    shows the new leader which pods to replace.
    """
    cluster = running(inPlace=False)
    uids = cluster.uids
    cluster.exit(1, 1).step(effects=1)
    assert cluster.uids == uids and cluster.job.status.restarts.total == 1
    cluster.settle()
    assert not {*cluster.uids} & {*uids}
    assert cluster.job.status.phase is Phase.RUNNING and cluster.job.status.incarnation == 2


@pytest.mark.parametrize(
    ("steps", "codes", "phase"),
    [
        ([9, 9, 9], [1, 1, 1], Phase.FAILED),
        ([9, 9], [1, 1], Phase.RUNNING),
        ([9, 10, 9], [1, 1, 1], Phase.RUNNING),
        ([9, 9, 9], [1, 2, 1], Phase.RUNNING),
        ([None, None, None, None], [1, 1, 1, 1], Phase.RUNNING),
    ],
)
def test_same_error_at_the_same_step_fails_the_job(
    steps: list[int | None], codes: list[int], phase: Phase
) -> None:
    cluster = running()
    for step, code in zip(steps, codes, strict=True):
        cluster.rank(1, step=step).exit(1, code, stderr="IndexError").settle().wait(120).settle()
    status = cluster.job.status
    assert status.phase is phase
    if phase is Phase.FAILED:
        assert status.reason == "RepeatedError" and "IndexError" in status.message


def test_a_kill_at_the_same_step_is_not_the_program_s_error() -> None:
    cluster = running()
    for _ in range(4):
        cluster.rank(1, step=9).exit(1, 137, signal=9).settle().wait(120).settle()
    assert cluster.job.status.phase is Phase.RUNNING


def test_a_crash_at_the_same_step_is_the_program_s_and_blames_no_node() -> None:
    cluster = running()
    for _ in range(3):
        cluster.rank(1, step=9).exit(1, 139, signal=11).settle().wait(120).settle()
    assert cluster.job.status.reason == "RepeatedError" and "SIGSEGV" in cluster.job.status.message
    assert cluster.job.status.offenders == []


def test_clock_skew_does_not_delay_a_restart() -> None:
    cluster = running()
    cluster.exit(0, 76, ended=cluster.now.timestamp() + 300).settle()
    assert cluster.job.status.restarts.total == 1


def test_identical_errors_may_be_allowed() -> None:
    cluster = running(maxIdenticalErrors=0)
    for _ in range(5):
        cluster.rank(1, step=9).exit(1, 1).settle().wait(120).settle()
    assert cluster.job.status.phase is Phase.RUNNING


def terms(plan: Any) -> list[Any]:
    key = "preferredDuringSchedulingIgnoredDuringExecution"
    return [
        term["preference"]["matchFields"]
        for body in plan.manifests
        for term in body["spec"].get("affinity", {}).get("nodeAffinity", {}).get(key, [])
    ]


def test_a_repeat_offender_is_avoided_and_remembered() -> None:
    cluster = running()
    node = cluster.pods["job-worker-1"].node
    for _ in range(2):
        cluster.exit(1, 137, signal=9).settle().wait(120).settle()
    assert [(o.node, o.faults, o.reason) for o in cluster.job.status.offenders] == [(node, 2, "RankKilled")]
    made = [fields for plan in cluster.plans for fields in terms(plan)]
    assert made == [[{"key": "metadata.name", "operator": "NotIn", "values": [node]}]]
    cluster.spec(suspend=True).settle().spec(suspend=False).settle()
    assert len([fields for plan in cluster.plans for fields in terms(plan)]) == 4


def test_no_node_is_avoided_if_disabled_in_the_spec() -> None:
    cluster = running(avoidRepeatOffenders=0)
    for _ in range(3):
        cluster.exit(1, 137, signal=9).settle().wait(120).settle()
    assert not [fields for plan in cluster.plans for fields in terms(plan)]


def test_an_echo_waits_for_its_cause() -> None:
    cluster = running()
    now = cluster.now.timestamp()
    cluster.exit(0, 76, ended=now).settle()
    assert cluster.job.status.incarnation == 1
    assert cluster.plans[-1].requeue_after == pytest.approx(0.5)
    cluster.exit(1, 137, signal=9, ended=now - 0.1).settle()
    last = cluster.job.status.restarts.last
    assert last is not None and (last.reason, last.rank) == ("RankKilled", 1)


def test_echo_without_a_cause_restarts_the_job() -> None:
    cluster = running()
    cluster.exit(0, 76, ended=cluster.now.timestamp()).settle().wait(1).settle()
    last = cluster.job.status.restarts.last
    assert last is not None and last.reason == "PeerLost"


def test_earliest_error_is_blamed() -> None:
    cluster = running()
    now = cluster.now.timestamp()
    cluster.exit(0, 1, ended=now).exit(2, 1, ended=now - 0.2).settle()
    last = cluster.job.status.restarts.last
    assert last is not None and last.rank == 2


def test_every_fault_reason_has_a_policy() -> None:
    for reason in (Reasons.RANK_FAILED, Reasons.NODE_LOST, Reasons.REGROW, Reasons.POD_EVICTED):
        assert reason.name in POLICIES
    assert not [name for name, row in POLICIES.items() if row.terminal and row.echo]
