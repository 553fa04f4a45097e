"""Tests of the faults that other serving systems are known for. Each has a test, or a sentence why it cannot
happen in the plan of a ServingJob.
"""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

import pytest
from tests.unit.controllers.servingjob.servers import Servers, make_store, make_trained

from convoy_controllers.resources import POD_DISRUPTION_BUDGETS
from convoy_controllers.views import PodView
from convoy_crds.terms import LABEL_REVISION

ELSEWHERE: dict[int, str] = {
    10: "A replica is ready only after the engine's self-test has computed an answer (workloads), and the "
    "end-to-end test sends requests during a roll.",
    11: "Convoy keeps no list of backends. Clients use the Service, whose endpoints the API server keeps.",
    17: "The Service leads to activators or replicas only after they are ready, and a held request "
    "tries the next: test_activation.py::test_the_last_replica_stays_until_the_service_leads_to_activators, "
    "activator/test_activator.py::test_a_request_that_reaches_no_replica_waits_for_the_next.",
    18: "A held request starts a replica at once, and the replica's readiness releases it: "
    "test_activation.py::test_a_held_request_starts_a_replica_at_once_and_gets_its_address.",
}
"""Numbers of the faults that the plan cannot have, with the reason."""


def good(revisions: set[str]) -> Any:
    """Return a rule by which only pods of these revisions become ready."""
    return lambda pod: pod.labels[LABEL_REVISION] in revisions


def revisions_of(pods: list[PodView]) -> list[str]:
    return sorted(pod.labels[LABEL_REVISION] for pod in pods)


def test_01_an_old_replica_is_deleted_only_after_every_proxy_knows_the_new_one() -> None:
    servers = Servers(replicas=1).settle().size(1)
    while not any(pod.ready for pod in servers.live(group="1")):
        assert not servers.step().deletions
    assert servers.serving == 2
    made = servers.step()
    assert not made.deletions and made.requeue_after is not None and made.requeue_after <= 3
    assert [one.name for one in servers.wait(3).step().deletions] == ["llm-worker-0-0"]


def test_02_a_revert_during_a_rollout_obeys_the_same_budget() -> None:
    servers = Servers(replicas=3).settle()
    first = servers.job.status.update_revision
    servers.size(1).run(6)
    assert len(set(revisions_of(servers.live()))) == 2
    servers.edit(roles=[{"name": "worker", "engine": {"name": "lm"}}])
    for _ in range(40):
        servers.step()
        servers.wait(2)
        assert servers.serving >= 3 and len(servers.live()) <= 4
    assert set(revisions_of(servers.live())) == {first}


def test_03_a_ready_replica_with_an_old_exit_code_stays() -> None:
    servers = Servers().settle()
    before = {pod.uid for pod in servers.pods.values()}
    servers.exit("llm-worker-0-0", 137).settle()
    assert {pod.uid for pod in servers.pods.values()} == before and servers.serving == 2
    servers.wait(7200)
    assert not servers.step().deletions


@pytest.mark.parametrize("limits", [{"maxSurge": 1}, {"maxSurge": 0, "maxUnavailable": 1}])
def test_04_the_fix_rolls_although_all_old_replicas_are_broken(limits: dict[str, int]) -> None:
    servers = Servers(replicas=3, rollout=limits)
    servers.good = good(set())
    servers.run(20)
    servers.size(1).step()
    servers.good = good({servers.job.status.update_revision})
    servers.settle()
    assert servers.job.status.ready == "3/3"


def test_05_a_second_edit_during_a_rollout_leaves_no_pod_behind() -> None:
    servers = Servers(replicas=3).settle()
    servers.size(1).run(4).size(2).settle()
    assert set(revisions_of(servers.live())) == {servers.job.status.update_revision}
    assert servers.job.status.updated_ready_replicas == 3


def test_06_a_rollout_is_complete_only_when_every_replica_is_updated_and_ready() -> None:
    servers = Servers().settle().size(1)
    servers.good = lambda pod: pod.labels[LABEL_REVISION] != servers.job.status.update_revision
    servers.run(10)
    status = servers.job.status
    assert status.observed_generation == 2 and status.current_revision != status.update_revision
    assert servers.condition["Progressing"] == ("True", "RollingOut")
    assert status.updated_ready_replicas == 0 and status.ready_replicas == 2


def test_07_a_new_model_rolls_within_the_budget() -> None:
    model = {"checkpoint": {"job": "train", "store": "s3", "follow": True}}
    servers = Servers(replicas=3, model=model)
    servers.store, servers.source = make_store(), make_trained(10)
    servers.settle().wait(700)
    servers.source = make_trained(20)
    for _ in range(40):
        servers.step()
        servers.wait(2)
        assert servers.serving >= 3 and len(servers.live()) <= 4
    assert servers.job.status.model is not None and servers.job.status.model.step == 20
    assert set(revisions_of(servers.live())) == {servers.job.status.update_revision}


def test_08_a_pod_that_is_replaced_during_a_rollout_keeps_the_revision_of_its_replica() -> None:
    roles = [{"name": "worker", "groupSize": 2, "engine": {"name": "lm"}}]
    servers = Servers(roles=roles).settle()
    servers.good = good({servers.job.status.update_revision})
    new = [{**roles[0], "engine": {"name": "lm", "params": {"size": 1}}}]
    servers.edit(roles=new).run(4)
    servers._remove("llm-worker-0-0")
    servers.run(6)
    for number in ("0", "1", "2"):
        assert len(set(revisions_of(servers.live(group=number)))) == 1
    assert servers.serving == 2


def test_09_a_surge_without_a_node_is_named_and_the_spec_may_allow_to_go_without() -> None:
    servers = Servers().settle()
    servers.places = lambda pod: len([one for one in servers.pods.values() if one.node]) < 2
    servers.size(1).run(5)
    assert servers.condition["Progressing"] == ("True", "RollingOut")
    assert "Insufficient cpu" in servers.message("Progressing")
    assert servers.condition["Degraded"] == ("True", "Unschedulable")
    servers.rollout(maxUnavailable=1).settle()
    assert servers.job.status.updated_ready_replicas == 2


def test_09_a_surge_that_a_quota_refuses_is_named_and_costs_no_replica() -> None:
    """A quota counts the surge. The older replicas serve until there is room or the spec allows fewer."""
    servers = Servers().settle()
    servers.refused = {"llm-worker-2": "pods is forbidden: exceeded quota: pods=2"}
    servers.size(1).run(10)
    assert servers.serving == 2 and len(servers.live()) == 2
    assert servers.condition["Degraded"] == ("True", "PodRejected")
    for condition in ("Degraded", "Progressing"):
        assert "exceeded quota" in servers.message(condition)
    servers.rollout(maxUnavailable=1)
    for _ in range(40):
        full = len(servers.pods) >= 2
        servers.refused = {"llm-worker-": "pods is forbidden: exceeded quota: pods=2"} if full else {}
        servers.step()
        servers.wait(2)
        assert servers.serving >= 1
    assert servers.job.status.updated_ready_replicas == 2
    assert servers.condition["Degraded"] == ("False", "ReplicasHealthy")


def test_12_a_replica_that_does_not_end_gets_no_request_and_holds_no_rollout() -> None:
    """Each request has a deadline and each drain a limit: see `serving/test_life.py`."""
    servers = Servers().settle()
    before = set(servers.pods)
    servers._remove = lambda name: None  # type: ignore[method-assign]
    servers.size(1).run(20)
    assert servers.condition["Progressing"] == ("True", "RolloutComplete")
    assert servers.job.status.updated_ready_replicas == 2
    assert all(servers.pods[name].deleting and not servers.pods[name].ready for name in before)


def test_12_the_drain_has_a_limit() -> None:
    servers = Servers(rollout={"drainSeconds": 45}).settle()
    body = servers.manifests["llm-worker-0-0"]
    assert body["spec"]["terminationGracePeriodSeconds"] == 3 + 45 + 10
    variables = {one["name"]: one.get("value") for one in body["spec"]["containers"][0]["env"]}
    assert (variables["CONVOY_DRAIN_SECONDS"], variables["CONVOY_GRACE_SECONDS"]) == ("45", "53")


def test_13_a_replica_whose_rank_ended_is_not_ready_at_once_and_restarts_in_place() -> None:
    servers = Servers().settle()
    uid = servers.pods["llm-worker-0-0"].uid
    made = servers.exit("llm-worker-0-0", 0, signal=9).step()
    assert servers.job.status.ready == "1/2" and servers.condition["Degraded"] == ("True", "RankKilled")
    assert made.commands and not made.creations, "the next incarnation forms in the same plan"
    servers.settle()
    assert servers.pods["llm-worker-0-0"].uid == uid and servers.job.status.ready == "2/2"
    assert servers.condition["Degraded"] == ("False", "ReplicasHealthy")


def test_14_the_status_follows_the_pods_and_nothing_is_written_at_rest() -> None:
    servers = Servers(replicas=4).settle()
    objects = dict(servers.objects)
    for _ in range(5):
        made = servers.wait(600).step()
        assert made.status is None and not made.creations and not made.deletions and not made.commands
    assert servers.objects == objects


def test_15_a_deterministic_crash_ends_with_the_first_error() -> None:
    servers = Servers(replicas=1, recovery={"maxRestarts": 3, "windowSeconds": 3600})
    servers.settle()
    servers.exit("llm-worker-0-0", 1, stderr="Traceback:\nValueError: no tensor wte.weight")
    for _ in range(30):
        servers.step()
        servers.wait(5)
        for name, pod in servers.pods.items():
            if pod.uid in servers.slots and servers.slots[pod.uid].ranks:
                servers.exit(name, 1, stderr="later noise")
    assert servers.condition["Degraded"] == ("True", "ReplicaFailed")
    message = servers.message("Degraded")
    assert "ValueError: no tensor wte.weight" in message and "later noise" not in message
    assert "spec.recovery.maxRestarts=3" in message and "replica worker-0" in message
    assert len(servers.record().times) == 4
    made = servers.step()
    assert not made.commands and not made.creations
    servers.good = lambda pod: True
    servers.wait(3700).settle()
    assert servers.job.status.ready == "1/1", "after a whole window the replica gets a new budget"


def test_15_members_wait_without_limit_for_one_that_still_loads() -> None:
    roles = [{"name": "worker", "groupSize": 2, "engine": {"name": "lm"}}]
    servers = Servers(replicas=1, roles=roles)
    servers.places = lambda pod: not pod.name.endswith("-1")
    servers.run(50, 60)
    assert not servers.assigned and not servers.record().times, "no rendezvous begins before all are up"
    uid = servers.pods["llm-worker-0-0"].uid
    servers.places = lambda pod: True
    servers.settle()
    assert servers.job.status.ready == "1/1" and servers.pods["llm-worker-0-0"].uid == uid


def test_16_a_crash_restarts_in_place_and_fetches_nothing_again() -> None:
    servers = Servers(replicas=1, model={"checkpoint": {"job": "train", "store": "s3"}})
    servers.store, servers.source = make_store(), make_trained(10)
    servers.settle()
    assert len(servers.delivered) == 1
    made = servers.exit("llm-worker-0-0").step()
    assert not made.creations and not made.deletions
    servers.settle()
    assert servers.job.status.ready == "1/1" and len(servers.delivered) == 1


def test_19_autoscalers_find_one_pod_of_each_replica() -> None:
    roles = [{"name": "worker", "groupSize": 2, "engine": {"name": "lm"}}]
    servers = Servers(roles=roles).settle()
    wanted = dict(one.split("=") for one in servers.job.status.selector.split(","))
    chosen = [pod for pod in servers.pods.values() if wanted.items() <= pod.labels.items()]
    assert sorted(pod.name for pod in chosen) == ["llm-worker-0-0", "llm-worker-1-0"]
    assert servers.job.status.replicas == 2


def test_20_a_lost_node_gets_no_traffic_at_once_and_its_pods_are_replaced_later() -> None:
    servers = Servers().settle()
    node = servers.pods["llm-worker-0-0"].node or ""
    made = servers.silence(node, 6).step()
    (mark,) = [one for one in made.children if getattr(one, "subresource", "") == "status"]
    condition = mark.manifest["status"]["conditions"][0]  # type: ignore[union-attr]
    assert (condition["type"], condition["status"]) == ("Ready", "False") and node in condition["message"]
    assert not made.deletions and servers.job.status.ready == "1/2"
    assert not servers.silence(node, 7).step().deletions
    made = servers.silence(node, 16).step()
    assert [(one.name, one.grace_seconds) for one in made.deletions] == [("llm-worker-0-0", 0)]
    servers.settle()
    assert servers.job.status.ready == "2/2"
    assert node not in {pod.node for pod in servers.live()}
    assert not servers.record().times, "the loss of a node does not count"


@pytest.mark.parametrize(("replicas", "size", "expected"), [(3, 1, 2), (2, 1, 1), (2, 2, 3), (1, 1, 1)])
def test_20_a_disruption_budget_leaves_room_for_a_drain(replicas: int, size: int, expected: int) -> None:
    roles = [{"name": "worker", "groupSize": size, "engine": {"name": "lm"}}]
    servers = Servers(replicas=replicas, roles=roles).settle()
    body = servers.objects[POD_DISRUPTION_BUDGETS, "llm-worker"]
    assert body["spec"]["minAvailable"] == expected
    assert body["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_20_a_single_replica_is_replaced_before_its_node_is_drained() -> None:
    servers = Servers(replicas=1).settle()
    node = servers.pods["llm-worker-0-0"].node or ""
    servers.cordon(node)
    for _ in range(20):
        servers.step()
        servers.wait(2)
        assert servers.serving >= 1
    assert node not in {pod.node for pod in servers.pods.values()} and servers.job.status.ready == "1/1"


def test_20_a_drain_is_not_blocked_if_the_surge_finds_no_node() -> None:
    servers = Servers(replicas=1).settle()
    servers.cordon(servers.pods["llm-worker-0-0"].node or "")
    servers.places = lambda pod: False
    servers.run(5)
    assert servers.objects[POD_DISRUPTION_BUDGETS, "llm-worker"]["spec"]["minAvailable"] == 0


def test_every_fault_has_a_test_or_a_reason() -> None:
    names = [name for name, _ in inspect.getmembers(sys.modules[__name__], inspect.isfunction)]
    tested = {int(found[1]) for name in names if (found := re.match(r"test_(\d\d)_", name))}
    assert tested | set(ELSEWHERE) == set(range(1, 21)) and not tested & set(ELSEWHERE)
