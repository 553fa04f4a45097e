"""Tests of faults of replicas: restarts in place, replaced pods, budgets, and suspended jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.controllers.servingjob.servers import START, Servers

from convoy_controllers.commands import Assign
from convoy_controllers.resources import CONTROLLER_REVISIONS, POD_DISRUPTION_BUDGETS, SERVICES
from convoy_controllers.servingjob.groups import groups
from convoy_controllers.servingjob.plan import plan
from convoy_controllers.servingjob.restarts import after_fault, refreshed
from convoy_controllers.workers.faults import Fault
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.servingjob_rollout import ServingRecovery
from convoy_crds.servingjob_status import GroupRecord

PAIRS = [{"name": "worker", "groupSize": 2, "engine": {"name": "lm"}}]


def test_a_group_restarts_whole_after_a_fault_of_one_rank() -> None:
    servers = Servers(replicas=1, roles=PAIRS).settle()
    first = servers.record().incarnation
    uids = {pod.uid for pod in servers.pods.values()}
    servers.assigned.clear()
    servers.exit("llm-worker-0-1").settle()
    assert servers.record().incarnation == first + 1
    assert {one.pod_uid for one in servers.assigned} == uids == {pod.uid for pod in servers.pods.values()}
    assert {(one.slot, one.rank_offset, one.world_size) for one in servers.assigned} == {(0, 0, 2), (1, 1, 2)}


def test_a_restart_of_one_group_leaves_the_others_alone() -> None:
    servers = Servers(replicas=3).settle()
    before = {one.number: one.incarnation for one in servers.records}
    servers.exit("llm-worker-1-0").settle()
    after = {one.number: one.incarnation for one in servers.records}
    assert (after[0], after[2]) == (before[0], before[2]) and after[1] == max(before.values()) + 1


def test_the_cause_is_named_instead_of_its_echo() -> None:
    servers = Servers(replicas=1, roles=PAIRS).settle()
    servers.exit("llm-worker-0-0", 76, stderr="Connection closed by peer")
    made = servers.step()
    assert not made.commands and made.requeue_after is not None and made.requeue_after <= 0.5
    servers.exit("llm-worker-0-1", 1, stderr="ValueError: boom").step()
    assert "ValueError: boom" in servers.record().error


def test_a_server_that_exits_with_code_0_is_restarted() -> None:
    servers = Servers(replicas=1).settle()
    servers.exit("llm-worker-0-0", 0).step()
    assert "a server must run until it is asked to stop" in servers.message("Degraded")
    assert servers.settle().job.status.ready == "1/1"


def test_a_failed_pod_is_replaced_after_the_back_off() -> None:
    servers = Servers(replicas=1).settle()
    servers.exit("llm-worker-0-0").settle()
    uid = servers.pods["llm-worker-0-0"].uid
    servers.pod("llm-worker-0-0", phase="Failed", exit_code=1, termination_message="boom", ready=False)
    made = servers.step()
    assert [one.name for one in made.deletions] == ["llm-worker-0-0"] and not made.creations
    assert made.requeue_after is not None and made.requeue_after <= 1
    servers.settle()
    assert servers.pods["llm-worker-0-0"].uid != uid and servers.job.status.ready == "1/1"
    assert len(servers.record().times) == 2


def test_restarts_that_do_not_help_replace_all_pods_of_the_group() -> None:
    servers = Servers(replicas=1, roles=PAIRS).settle()
    uids = {pod.uid for pod in servers.pods.values()}
    for _ in range(3):
        assert {pod.uid for pod in servers.pods.values()} == uids
        servers.exit("llm-worker-0-0", 1).settle()
    assert not {pod.uid for pod in servers.pods.values()} & uids


def test_an_evicted_replica_gets_another_number_at_once() -> None:
    servers = Servers().settle()
    servers.drains = False
    servers.pod("llm-worker-0-0", deleting=True, ready=False)
    made = servers.step()
    assert [body["metadata"]["name"] for body in made.manifests] == ["llm-worker-2-0"]
    servers.drains = True
    servers.settle()
    assert servers.job.status.ready == "2/2" and not servers.record(2).times


@pytest.mark.parametrize("disruption", ["", "EvictionByEvictionAPI", "DeletionByTaintManager"])
@pytest.mark.parametrize("cordoned", [False, True])
def test_a_group_that_loses_a_pod_drains_whole(disruption: str, cordoned: bool) -> None:
    servers = Servers(replicas=2, roles=PAIRS).settle()
    servers.drains = False
    if cordoned:
        servers.cordon(servers.pods["llm-worker-0-1"].node or "")
    servers.pod("llm-worker-0-1", deleting=True, ready=False, disruption=disruption)
    servers.step()
    drained = {name for name, pod in servers.pods.items() if pod.deleting}
    assert drained == {"llm-worker-0-0", "llm-worker-0-1"}
    servers.drains = True
    servers.settle()
    assert servers.job.status.ready == "2/2"


def without_status(servers: Servers) -> Servers:
    raw = servers.job.to_dict()
    del raw["status"]
    servers.job = type(servers.job).model_validate(raw)
    return servers


def test_running_pods_without_a_record_go_on() -> None:
    servers = Servers(roles=PAIRS).settle()
    records, assigned = servers.records, len(servers.assigned)
    without_status(servers)
    for _ in range(5):
        servers.step()
        assert servers.job.status.ready == "2/2"
        servers.wait(2)
    assert servers.records == records and len(servers.assigned) == assigned
    servers.edit(replicas=3).settle()
    assert servers.record(2).incarnation == 3, "agents have already seen incarnation 2"


def test_pods_without_a_record_form_anew_if_their_incarnations_differ() -> None:
    servers = Servers(replicas=1, roles=PAIRS).settle()
    uid = servers.pods["llm-worker-0-1"].uid
    servers.slots[uid] = replace(servers.slots[uid], incarnation=0, ranks=())
    without_status(servers).settle()
    assert servers.job.status.ready == "1/1" and servers.record().incarnation == 2


def test_a_node_whose_clock_is_ahead_does_not_hold_its_replicas_unready() -> None:
    servers = Servers(replicas=3).settle()
    for number in range(3):
        servers.rank(f"llm-worker-{number}-0", started=servers.now.timestamp() + 120)
    servers.size(1)
    for _ in range(20):
        servers.step()
        assert servers.serving >= 3
        servers.wait(2)


def test_a_new_operator_leaves_running_replicas_alone() -> None:
    """The agents have not reported yet to the operator."""
    servers = Servers().settle()
    made = plan(replace(servers.observed(), slots={}), servers.now)
    assert made.status is None and not made.deletions and not made.commands


def test_a_lost_assignment_is_sent_again() -> None:
    servers = Servers(replicas=1)
    servers.run(3)
    uid = servers.pods["llm-worker-0-0"].uid
    servers.slots[uid] = replace(servers.slots[uid], incarnation=0, ranks=())
    made = servers.step()
    assert [type(one) for one in made.commands] == [Assign] and made.requeue_after is not None


def test_suspending_drains_the_pods_and_keeps_the_service() -> None:
    servers = Servers().settle()
    servers.drains = False
    made = servers.edit(suspend=True).step()
    assert all(one.grace_seconds is None for one in made.deletions) and len(made.deletions) == 2
    assert servers.condition["Suspended"] == ("True", "Suspending")
    servers.drains = True
    servers.settle()
    assert servers.condition["Suspended"] == ("True", "Suspended") and not servers.pods
    assert servers.condition["Available"][0] == "False" and servers.job.status.ready == "0/2"
    kinds = {kind for kind, _ in servers.objects}
    assert SERVICES in kinds and CONTROLLER_REVISIONS in kinds and POD_DISRUPTION_BUDGETS not in kinds
    servers.edit(suspend=False).settle()
    assert servers.job.status.ready == "2/2" and "Suspended" not in servers.condition


def test_a_job_of_another_controller_is_left_alone() -> None:
    made = Servers(managedBy="example.com/other").step()
    assert made.status is None and not made.children


FAULT = Fault(Reasons.RANK_FAILED, "rank 0 failed: first")
LOST = Fault(Reasons.NODE_LOST, "node lost")
RECOVERY = ServingRecovery(max_restarts=3, window_seconds=600)


def test_the_back_off_doubles_up_to_a_minute() -> None:
    record, pauses = GroupRecord(role="w", number=0), []
    for number in range(10):
        now = START + timedelta(seconds=number)
        record = after_fault(record, FAULT, ServingRecovery(max_restarts=100), now)
        pauses.append((record.not_before - now).total_seconds() if record.not_before else 0)
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_faults_of_the_cluster_cost_no_budget() -> None:
    record = GroupRecord(role="w", number=0)
    for number in range(20):
        record = after_fault(record, LOST, RECOVERY, START + timedelta(seconds=number))
    assert not record.times and record.failed is None and record.not_before is None


def test_restarts_outside_the_window_do_not_count() -> None:
    record = GroupRecord(role="w", number=0)
    for number in range(20):
        record = after_fault(record, FAULT, RECOVERY, START + timedelta(seconds=201 * number))
        assert record.failed is None and len(record.times) <= 3


def test_an_available_replica_loses_its_error_but_not_its_restarts() -> None:
    record = after_fault(GroupRecord(role="w", number=0), FAULT, RECOVERY, START)
    found = refreshed(record, settled=True, recovery=RECOVERY, now=START)
    assert (found.error, found.reason, found.times) == ("", "", [START])


@pytest.mark.parametrize(("seconds", "fails"), [(599, True), (600, False)])
def test_a_failed_replica_rests_for_a_window(seconds: int, fails: bool) -> None:
    record = after_fault(GroupRecord(role="w", number=0), FAULT, ServingRecovery(max_restarts=0), START)
    assert record.failed == START
    now = START + timedelta(seconds=seconds)
    found = refreshed(record, settled=False, recovery=RECOVERY, now=now)
    assert (found.failed is not None) is fails


@pytest.mark.parametrize(
    ("probe", "seconds"),
    [
        (None, 6),
        ({"httpGet": {"port": 8080}}, 36),
        ({"httpGet": {"port": 8080}, "periodSeconds": 2, "failureThreshold": 1}, 8),
        ({"httpGet": {"port": 8080}, "periodSeconds": "no number"}, 123),
    ],
)
def test_restarted_replica_is_available_after_its_probe_may_have_failed(
    probe: dict[str, Any] | None, seconds: int
) -> None:
    """The kubelet may still report the ranks before the restart as ready."""
    container = {"name": "main", "image": "mine", "command": ["serve"], "readinessProbe": probe}
    own = {"template": {"spec": {"containers": [container]}}} if probe else {"engine": {"name": "lm"}}
    servers = Servers(roles=[{"name": "worker", **own}], replicas=1).settle()
    servers.wait(10)
    servers.rank("llm-worker-0-0", started=servers.now.timestamp())

    def available(after: float) -> bool:
        now = servers.now + timedelta(seconds=after)
        (found,) = groups(servers.observed(), servers.revisions, {}, now.timestamp())
        return found.settled(now)

    assert not available(seconds - 0.1) and available(seconds)
