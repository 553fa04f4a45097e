"""Independent roles: their pods come and go without any effect on the process group."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controllers.independents import (
    FIRST,
    ROLLOUT,
    WORKER,
    counts,
    end,
    group,
    incarnation,
    make_cluster,
    restart,
)

from convoy_controllers.children import Delete
from convoy_controllers.commands import Assign, ReportMembers, Shutdown
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.independent.scope import split
from convoy_crds.terms import ENV_CHECKPOINT_TIERS, ENV_MEMBERS_FILE, ENV_ROLE_REPLICAS, LABEL_MEMBERSHIP
from convoy_crds.trainingjob_status import Phase

ALL = {f"job-rollout-{number}" for number in range(3)}


def independents(toy: ToyCluster) -> set[str]:
    return {name for name in toy.pods if name.startswith("job-rollout-")}


def test_pods_start_after_the_group_and_count_for_nothing() -> None:
    job = make_job(roles=[WORKER, ROLLOUT])
    toy = ToyCluster(job, make_engine())
    toy.launchers = False
    for _ in range(5):
        toy.step()
    assert independents(toy) == set(), "the group has not formed"
    assert toy.condition["IndependentReady"] == ("Unknown", "IndependentWaiting")
    toy.launchers = True
    toy.connect("job-worker-0").connect("job-worker-1").settle()
    status = toy.job.status
    assert (status.phase, status.ready, status.independent) == (Phase.RUNNING, "2/2", "3/3")
    assert "2 ranks run" in status.message and independents(toy) == ALL
    assert toy.condition["IndependentReady"] == ("True", "IndependentRunning")


def test_each_pod_is_a_job_of_its_own_for_agents() -> None:
    toy = make_cluster(checkpoint={"interval": "20s", "tiers": {"local": {}}})
    sent = [command for made in toy.plans for command in made.commands]
    own = next(one for one in sent if isinstance(one, Assign) and one.replica == 1 and one.role == "rollout")
    assert own.job_uid == "uid-job.rollout.1" and own.job == "default/job"
    assert (own.slot, own.rank_offset, own.processes, own.world_size, own.slots) == (0, 0, 1, 1, 1)
    assert own.master_addr == toy.pods["job-rollout-1"].ip and own.memory is None and not own.strict
    assert [member.pod_uid for member in own.members] == [own.pod_uid]
    told = next(one for one in sent if isinstance(one, ReportMembers))
    assert sent.index(told) < sent.index(own), "the file is there when the program starts"
    ips = [toy.pods[f"job-worker-{number}"].ip for number in range(2)]
    assert [(one.role, one.replica, one.rank, one.address) for one in told.members] == [
        ("worker", 0, 0, ips[0]),
        ("worker", 1, 1, ips[1]),
    ]
    bodies = {body["metadata"]["name"]: body for made in toy.plans for body in made.manifests}
    env = {one["name"]: one["value"] for one in bodies[FIRST]["spec"]["containers"][0]["env"]}
    assert env[ENV_MEMBERS_FILE] == "/var/run/convoy/members.json" and env[ENV_ROLE_REPLICAS] == "3"
    assert ENV_CHECKPOINT_TIERS not in env
    assert bodies[FIRST]["metadata"]["labels"][LABEL_MEMBERSHIP] == "Independent"
    assert LABEL_MEMBERSHIP not in bodies["job-worker-0"]["metadata"]["labels"]


def test_a_failed_program_restarts_in_its_pod_and_then_in_another() -> None:
    toy = make_cluster()
    before, uid, first = group(toy), toy.pods[FIRST].uid, incarnation(toy)
    restart(end(toy))
    assert toy.pods[FIRST].uid == uid and incarnation(toy) > first
    second = incarnation(toy)
    restart(end(toy))
    assert toy.pods[FIRST].uid != uid and incarnation(toy) > second
    assert (counts(toy).restarts, counts(toy).preemptions) == (2, 0)
    assert group(toy) == before and toy.job.status.independent == "3/3"


def test_in_place_false_replaces_the_pod() -> None:
    toy = make_cluster(recovery={"inPlace": False})
    uid = toy.pods[FIRST].uid
    restart(end(toy))
    assert toy.pods[FIRST].uid != uid


def test_back_off_grows_up_to_a_minute() -> None:
    toy = make_cluster(rollout={"budget": {"maxRestarts": 20}})
    pauses = []
    for _ in range(9):
        end(toy).settle()
        record = toy.job.status.internal.independent[0]
        pauses.append((record.not_before - toy.now).total_seconds() if record.not_before else 0.0)
        restart(toy)
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_a_completed_program_is_not_started_again() -> None:
    toy = make_cluster()
    before = group(toy)
    made = end(toy, code=0).step()
    shutdowns = [one for one in made.commands if isinstance(one, Shutdown)]
    assert [(one.pod_uid, one.exit_code) for one in shutdowns] == [(toy.pods[FIRST].uid, 0)]
    restart(toy)
    assert counts(toy).completed == 1 and toy.job.status.independent == "2/3"
    assert toy.pods[FIRST].phase == "Succeeded", "its pod is kept for its log"
    assert group(toy) == before
    toy.lose(FIRST).settle()
    assert FIRST not in toy.pods and toy.condition["IndependentReady"][0] == "True"


def test_a_program_that_saved_its_state_on_request_is_started_again() -> None:
    toy = make_cluster()
    end(toy, code=0, termination_requested=True)
    toy.pod(FIRST, deleting=True, leaving_since=toy.now.timestamp() - 1).settle()
    assert counts(toy).completed == 0 and counts(toy).preemptions == 1


def test_a_program_that_its_node_stops_is_preempted() -> None:
    toy = make_cluster(rollout={"budget": {"maxRestarts": 0}})
    restart(end(toy, code=75, termination_requested=True))
    assert (counts(toy).preemptions, counts(toy).given_up) == (1, 0)


def test_a_crash_after_the_status_counts_no_fault_twice() -> None:
    toy = make_cluster()
    restart(end(toy))
    end(toy).step(effects=1)
    assert counts(toy).restarts == 2, "the status is stored before the pod is deleted"
    restart(toy)
    assert (counts(toy).restarts, counts(toy).preemptions) == (2, 0)


def test_the_end_of_a_back_off_is_planned() -> None:
    toy = make_cluster()
    restart(end(toy))
    made = end(toy).step()
    assert made.requeue_after is not None and made.requeue_after <= 1.0


@pytest.mark.parametrize(
    "facts",
    [
        {"deleting": True},
        {"disruption": "PreemptionByScheduler"},
        {"deleting": True, "disruption": "EvictionByEvictionAPI"},
        {"phase": "Failed", "disruption": "TerminationByKubelet"},
        {"phase": "Failed", "exit_code": 137, "termination_reason": "Error"},
    ],
)
def test_a_preemption_never_counts_as_a_failure(facts: dict[str, Any]) -> None:
    toy = make_cluster(rollout={"budget": {"maxRestarts": 0}})
    before = group(toy)
    for _ in range(3):
        toy.pod(FIRST, **facts).settle()
        if FIRST in toy.pods and toy.pods[FIRST].deleting:
            toy.lose(FIRST)
        restart(toy)
    assert (counts(toy).restarts, counts(toy).preemptions, counts(toy).given_up) == (0, 3, 0)
    assert group(toy) == before and toy.job.status.independent == "3/3"


def test_a_vanished_pod_is_replaced() -> None:
    toy = make_cluster()
    before, uid = group(toy), toy.pods[FIRST].uid
    toy.lose(FIRST).settle()
    assert toy.pods[FIRST].uid != uid and counts(toy).preemptions == 1
    assert group(toy) == before


def test_a_lost_node_costs_no_fencing() -> None:
    toy = make_cluster(recovery={"fencing": "Strict"})
    node = toy.pods[FIRST].node or ""
    outside = [name for name, pod in toy.pods.items() if pod.node == node]
    assert not any(name.startswith("job-worker") for name in outside), "the case needs a node of its own"
    before, uid = group(toy), toy.pods[FIRST].uid
    made = toy.silence(node, 6.0).step()
    deletions = [one for one in made.children if isinstance(one, Delete) and one.uid == uid]
    assert [one.grace_seconds for one in deletions] == [0]
    toy.settle()
    assert toy.pods[FIRST].node != node and group(toy) == before


def test_a_spent_budget_gives_up_one_pod_only() -> None:
    toy = make_cluster(rollout={"budget": {"maxRestarts": 1}})
    before = group(toy)
    for _ in range(2):
        restart(end(toy))
    assert independents(toy) == ALL - {FIRST}
    assert toy.condition["IndependentReady"] == ("False", "IndependentGivenUp")
    message = next(one.message for one in toy.job.status.conditions if one.type == "IndependentReady")
    assert FIRST in message and "spec.recovery.restartId" in message
    assert counts(toy).given_up == 1 and toy.job.status.independent == "2/3"
    assert "IndependentGivenUp" in toy.events and group(toy) == before
    toy.spec(recovery={"restartId": "again"}).settle()
    assert independents(toy) == ALL and toy.condition["IndependentReady"][0] == "True"


def test_preemptions_have_a_budget_of_their_own() -> None:
    toy = make_cluster(rollout={"budget": {"maxPreemptions": 1, "maxRestarts": 0}})
    for _ in range(2):
        restart(toy.lose(FIRST))
    assert counts(toy).given_up == 1 and counts(toy).preemptions == 2


def test_counts_of_a_budget_start_again_after_a_quiet_window() -> None:
    toy = make_cluster(rollout={"budget": {"maxRestarts": 1, "windowSeconds": 100}})
    for _ in range(4):
        restart(end(toy)).wait(101.0)
    assert (counts(toy).given_up, counts(toy).restarts) == (0, 4)


def test_an_incurable_fault_gives_the_pod_up_at_once() -> None:
    toy = make_cluster()
    end(toy, code=127, command_not_found=True).settle()
    assert counts(toy).given_up == 1 and counts(toy).restarts == 0


def test_pods_without_a_node_hold_nothing_up() -> None:
    toy = make_cluster(rollout={"minReplicas": 2})
    before = group(toy)
    toy.schedulable = False
    for name in ("job-rollout-0", "job-rollout-1"):
        toy.lose(name)
    toy.wait(2.0).settle()
    assert group(toy) == before and toy.job.status.independent == "1/3"
    assert toy.condition["IndependentReady"] == ("False", "IndependentBelowMinimum")
    message = next(one.message for one in toy.job.status.conditions if one.type == "IndependentReady")
    assert "spec.roles[1].minReplicas=2" in message
    assert toy.condition["Scheduled"][0] == "True" and toy.condition["Running"][0] == "True"


def test_a_pod_that_cannot_start_is_reported_although_none_is_needed() -> None:
    toy = make_cluster()
    toy.lose(FIRST).step()
    toy.pod(FIRST, waiting_reason="ImagePullBackOff", waiting_container="worker", image="typo", node="node-0")
    toy.step()
    assert toy.condition["IndependentReady"] == ("False", "IndependentNotStarting")
    message = next(one.message for one in toy.job.status.conditions if one.type == "IndependentReady")
    assert "role rollout" in message and "typo" in message
    assert toy.job.status.phase is Phase.RUNNING and toy.job.status.reason == "Training"


def test_a_step_of_the_group_proves_that_a_node_is_alive() -> None:
    toy = make_cluster()
    node = toy.pods["job-worker-1"].node or ""
    near = [name for name in ALL if toy.pods[name].node == node]
    assert near, "the case needs an Independent pod beside a worker"
    uids = {name: toy.pods[name].uid for name in near}
    toy.wait(20.0).silence(node, 6.0).train(5)
    made = toy.step()
    assert not any(isinstance(one, Delete) for one in made.children)
    assert {name: toy.pods[name].uid for name in near} == uids


def test_pods_that_wait_are_replaced_if_their_spec_or_their_agent_is_gone() -> None:
    toy = make_cluster()
    toy.launchers = False
    toy.lose(FIRST).step()
    toy.wait(3.0).step()
    uid, node = toy.pods[FIRST].uid, toy.pods[FIRST].node or ""
    assert toy.pods[FIRST].phase == "Running" and not toy.pods[FIRST].deleting
    toy.engine = make_engine(image="convoy/workloads:2")
    assert uid in {one.uid for one in toy.step().children if isinstance(one, Delete)}
    toy.wait(40.0).step()
    toy.wait(3.0).step()
    uid, node = toy.pods[FIRST].uid, toy.pods[FIRST].node or ""
    toy.silence(node, 40.0, agent_ready=False, pods_reachable=True)
    assert uid in {one.uid for one in toy.step().children if isinstance(one, Delete)}


def test_an_ended_pod_without_an_agent_is_deleted_by_force() -> None:
    toy = make_cluster()
    node, uid = toy.pods[FIRST].node or "", toy.pods[FIRST].uid
    toy.pod(FIRST, phase="Failed", exit_code=143, deleting=True, leaving_since=toy.now.timestamp())
    toy.silence(node, 40.0, agent_ready=False, pods_reachable=True)
    found = [one for one in toy.step().children if isinstance(one, Delete) and one.uid == uid]
    assert [one.grace_seconds for one in found] == [0]


def test_completed_pods_count_for_the_minimum() -> None:
    toy = make_cluster(rollout={"minReplicas": 3})
    end(toy, code=0).settle()
    assert toy.condition["IndependentReady"] == ("True", "IndependentRunning")


def test_a_refusal_is_seen_only_by_its_own_part() -> None:
    toy = make_cluster()
    toy.create_errors = {FIRST: "no", "job-worker-0": "neither"}
    parts = split(toy.observed())
    assert set(parts.members.create_errors) == {"job-worker-0"}
    assert set(parts.independents.create_errors) == {FIRST}
    assert {pod.name for pod in parts.independents.pods} == ALL
    assert set(parts.independents.slots) == {toy.pods[name].uid for name in ALL}


def test_an_elastic_group_shrinks_as_without_independent_pods() -> None:
    elastic = {**WORKER, "minReplicas": 1}
    toy = ToyCluster(make_job(roles=[elastic, ROLLOUT]), make_engine()).settle()
    toy.schedulable = False
    toy.lose("job-worker-1").step()
    toy.wait(15.0).settle()
    assert toy.job.status.reason == "Shrunk" and toy.job.status.independent == "3/3"


def test_a_refused_pod_is_reported_with_its_field() -> None:
    toy = make_cluster()
    before = group(toy)
    toy.create_errors[FIRST] = "exceeded quota: gpus"
    toy.lose(FIRST).settle()
    assert toy.condition["IndependentReady"] == ("False", "IndependentRefused")
    assert group(toy) == before and toy.condition["Valid"][0] == "True"


def test_a_lost_status_adopts_the_running_programs() -> None:
    toy = make_cluster()
    uids = {name: toy.pods[name].uid for name in ALL}
    starts = {name: incarnation(toy, name) for name in ALL}
    toy.job.status.internal.independent = []
    toy.job.status.internal.independent_incarnation = 0
    toy.settle()
    assert {name: toy.pods[name].uid for name in ALL} == uids
    assert toy.job.status.independent == "3/3" and counts(toy).restarts == 0
    assert {name: incarnation(toy, name) for name in ALL} == starts, "no program was started again"
