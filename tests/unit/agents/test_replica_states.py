"""Tests of the states of replicas: their uids, their settings in an assignment, and the order of restores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convoy_agents.pods import assignment, rules
from convoy_agents.pods.assignment import AssignmentError, NodeAddress
from convoy_agents.pods.report import to_wire
from convoy_agents.pods.state import PeerMoved, PodState
from convoy_agents.states.restoring import Candidate, ordered
from convoy_agents.tiercheck.budget import Budget
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint import replica_state
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Chunk, Manifest
from convoy_controllers.checkpoint.replica_state import state_uid

JOB = "0b1b1b1b-1b1b-1b1b-1b1b-123456789012"
OWN, SIBLING = state_uid(JOB, "server", "r1", 0).text, state_uid(JOB, "server", "r1", 17).text
ROLE, REVISION = state_uid(JOB, "front", "r1", 0).text, state_uid(JOB, "server", "r2", 0).text
FOREIGN = state_uid(JOB[:-1] + "3", "server", "r1", 0).text


def test_a_uid_says_whose_state_it_is() -> None:
    found = replica_state.parse(SIBLING)
    assert found is not None and found.text == SIBLING
    assert (found.job_uid, found.replica) == (JOB, 17) and replica_state.job_of(SIBLING) == JOB
    assert replica_state.parse(JOB) is None and replica_state.job_of(JOB) == JOB
    assert len(state_uid(JOB, "r" * 24, "r" * 63, 999_999).text) <= 64, "the agents' limit of a uid"


@pytest.mark.parametrize(
    ("uid", "readable"),
    [
        (OWN, True),
        (SIBLING, True),
        (ROLE, False),
        (REVISION, False),
        (FOREIGN, False),
        (JOB, False),
        ("", False),
    ],
)
def test_a_replica_reads_states_of_its_role_and_revision_only(uid: str, readable: bool) -> None:
    assert replica_state.may_read(OWN, uid) is readable
    assert replica_state.may_read(uid, OWN) is readable


def message(**changes: object) -> hub_pb2.Assignment:
    places = [hub_pb2.NodeAddress(node=node, peer_address=f"{node}:1") for node in ("two", "three")]
    state = hub_pb2.ReplicaState(uid=OWN, limit=7, hosts=places[:1], holders=places[1:], token="signed")
    made = hub_pb2.Assignment(
        pod_uid="pod",
        job_uid=f"{JOB}.server.0",
        job="default/job",
        incarnation=3,
        processes=1,
        world_size=2,
        slots=2,
        members=[
            hub_pb2.Member(slot=number, pod_uid=uid, node="one", processes=1)
            for number, uid in enumerate(("pod", "other"))
        ],
        slot_token="of the group",
        replica_state=state,
    )
    made.MergeFrom(hub_pb2.Assignment(**changes))  # type: ignore[arg-type]
    return made


def test_a_state_has_one_writer_whatever_the_size_of_the_replica() -> None:
    plan = assignment.from_wire(message()).of_state()
    assert plan is not None and plan.memory is not None
    assert (plan.job_uid, plan.slot_token, plan.incarnation) == (OWN, "signed", 3)
    assert (plan.world_size, len(plan.members), list(plan.ranks)) == (1, 1, [0])
    assert (plan.memory.limit, plan.memory.copies) == (7, 1)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"replica_state": hub_pb2.ReplicaState(uid="../etc")}, "is not the uid of a replica's state"),
        ({"slot": 1}, "only slot 0 may"),
    ],
)
def test_an_assignment_with_a_wrong_state_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(AssignmentError, match=why):
        assignment.from_wire(message(**changes))


def test_the_settings_survive_the_agent_s_state_file() -> None:
    plan = assignment.from_wire(message())
    assert assignment.from_json(plan.to_json()) == plan
    assert replace(plan, replica_state=None).of_state() is None


def test_a_host_with_another_address_is_reached_there() -> None:
    state = PodState("pod", launcher_incarnation=3, assignment=assignment.from_wire(message()))
    moved = rules.reduce(state, PeerMoved("two", "two:2")).state
    assert moved.assignment is not None and moved.assignment.replica_state is not None
    assert moved.assignment.replica_state.hosts == (NodeAddress("two", "two:2"),)
    report = to_wire(moved)
    assert {(one.node, one.peer_address) for one in report.peers} >= {("two", "two:2"), ("three", "three:1")}
    assert (list(report.replica_state.hosts), report.replica_state.limit) == (["two"], 7)


def state(incarnation: int, saved: int) -> Manifest:
    return Manifest(Generation(incarnation, saved), "0", (Chunk("0" * 32, 4),), 4)


def test_the_own_state_comes_first_then_the_newest_then_the_nearest() -> None:
    place = NodeAddress("two", "two:1")
    own, away = Candidate(OWN, state(1, 10)), Candidate(OWN, state(1, 20), place)
    newest, near = Candidate(SIBLING, state(2, 40), place), Candidate(SIBLING, state(2, 40))
    older = Candidate(SIBLING, state(9, 30))
    found = [older, newest, near, own, away]
    assert ordered(OWN, found) == [away, own, near, newest, older]


def test_the_limit_counts_the_states_of_all_replicas_of_the_job() -> None:
    budget = Budget(1000)
    assert budget.grow(OWN, 60, 100) is None and budget.grow(FOREIGN, 90, 100) is None
    refusal = budget.grow(SIBLING, 50, 100)
    assert refusal is not None and refusal.own and refusal.missing == 10
    assert SIBLING not in budget.shares and budget.grow(SIBLING, 40, 100) is None
