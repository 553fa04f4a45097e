from __future__ import annotations

from dataclasses import replace

from tests.unit.agents.test_rules import plan

from convoy_agents.pods.state import PodState
from convoy_agents.vouching import MAX_NODES, REMEMBER_SECONDS, Vouching


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def holds(*incarnations: int) -> list[PodState]:
    return [PodState(f"pod-{number}", assignment=plan(number)) for number in incarnations]


def test_a_member_s_node_is_vouched_for_and_remembered() -> None:
    clock = Clock()
    vouching = Vouching(lambda: holds(1), clock)
    assert vouching.asked("two", "job")
    clock.now += 2.5
    assert vouching.recent() == [("two", 2500)]
    assert vouching.asked("two", "job")
    assert vouching.recent() == [("two", 0)]
    clock.now += REMEMBER_SECONDS
    assert vouching.recent() == [("two", 30_000)]
    clock.now += 0.1
    assert vouching.recent() == []


def test_neither_a_stranger_nor_a_job_of_others_is() -> None:
    vouching = Vouching(lambda: [PodState("new"), *holds(1)], Clock())
    assert not vouching.asked("three", "job")
    assert not vouching.asked("two", "another job")
    assert vouching.recent() == []


def test_a_node_that_the_job_went_on_without_is_not() -> None:
    later = plan(2)
    later = replace(later, members=(later.members[0], replace(later.members[1], node="three")))
    vouching = Vouching(lambda: [*holds(1), PodState("pod-2", assignment=later)], Clock())
    assert not vouching.asked("two", "job")
    assert vouching.asked("three", "job")


def test_memory_is_bounded() -> None:
    known = plan(1)
    members = tuple(replace(known.members[0], node=f"n{number}") for number in range(MAX_NODES + 5))
    vouching = Vouching(lambda: [PodState("pod", assignment=replace(known, members=members))], Clock())
    for member in members:
        assert vouching.asked(member.node, "job")
    assert [node for node, _ in vouching.recent()] == [member.node for member in members[5:]]
