"""Tests of the addresses of the process group that an agent gets for an Independent pod."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.agents.test_rules import hello, plan, run

from convoy_agents.outbox import Outbox
from convoy_agents.pods.registry import MAX_MEMBERS, Pods
from convoy_agents.pods.report import to_wire
from convoy_agents.pods.state import GroupMembers, MemberAddress, Urgency
from convoy_agents.wire import hub_pb2

MEMBERS = GroupMembers(3, (MemberAddress("worker", 0, 0, 2, "10.0.0.7"),))


def test_the_file_is_written_and_the_hub_learns_the_incarnation() -> None:
    known = run(hello(), MEMBERS)
    assert known.save and known.urgency is Urgency.NOW
    assert to_wire(known.state).members_incarnation == 3
    again = run(MEMBERS, state=known.state)
    assert (again.save, again.urgency) == (False, Urgency.NOW), "the hub has missed the report"
    assert to_wire(run(hello()).state).members_incarnation == 0


def test_an_older_incarnation_does_not_replace_a_newer_one() -> None:
    known = run(MEMBERS)
    late = run(replace(MEMBERS, incarnation=2), state=known.state)
    assert not late.save and late.state.members == MEMBERS


def test_a_restart_of_the_program_keeps_the_addresses() -> None:
    assert run(plan(2), state=run(hello(), plan(1), MEMBERS).state).state.members == MEMBERS


def test_the_content_of_the_file() -> None:
    member = {"role": "worker", "replica": 0, "rank": 0, "processes": 2, "address": "10.0.0.7"}
    assert MEMBERS.to_json() == {"incarnation": 3, "members": [member]}


def test_the_number_of_members_is_bounded() -> None:
    got: list[GroupMembers] = []

    class Session:
        """A session that keeps its events."""

        def dispatch(self, event: GroupMembers) -> None:
            got.append(event)

    pods = Pods(Outbox())
    pods._sessions["p"] = Session()  # type: ignore[assignment]
    many = [hub_pb2.MemberAddress(role="worker", rank=rank, address="10.0.0.7") for rank in range(300)]
    pods.command(
        hub_pb2.HubMessage(group_members=hub_pb2.GroupMembers(pod_uid="p", incarnation=1, members=many))
    )
    assert len(got[0].members) == MAX_MEMBERS
