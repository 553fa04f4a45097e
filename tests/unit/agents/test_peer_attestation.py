from __future__ import annotations

from dataclasses import replace

from tests.unit.agents.test_rules import plan

from convoy_agents.peer_attestation import PeerAttestation
from convoy_agents.pods.state import PodState
from convoy_controllers.liveness.attestation import MAX_NODES, REMEMBER_SECONDS


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def holds(*incarnations: int) -> list[PodState]:
    return [PodState(f"pod-{number}", assignment=plan(number)) for number in incarnations]


def test_a_member_s_node_is_attested_and_remembered() -> None:
    clock = Clock()
    attestation = PeerAttestation(lambda: holds(1), clock)
    assert attestation.request("two", "job")
    clock.now += 2.5
    assert attestation.recent() == [("two", 2500)]
    assert attestation.request("two", "job")
    assert attestation.recent() == [("two", 0)]
    clock.now += REMEMBER_SECONDS
    assert attestation.recent() == [("two", 30_000)]
    clock.now += 0.1
    assert attestation.recent() == []


def test_a_stranger_and_an_unknown_job_are_not_attested() -> None:
    attestation = PeerAttestation(lambda: [PodState("new"), *holds(1)], Clock())
    assert not attestation.request("three", "job")
    assert not attestation.request("two", "another job")
    assert attestation.recent() == []


def test_a_node_outside_the_newest_plan_is_not_attested() -> None:
    later = plan(2)
    later = replace(later, members=(later.members[0], replace(later.members[1], node="three")))
    attestation = PeerAttestation(lambda: [*holds(1), PodState("pod-2", assignment=later)], Clock())
    assert not attestation.request("two", "job")
    assert attestation.request("three", "job")


def test_the_number_of_attestations_is_bounded() -> None:
    known = plan(1)
    members = tuple(replace(known.members[0], node=f"n{number}") for number in range(MAX_NODES + 5))
    pod = PodState("pod", assignment=replace(known, members=members))
    attestation = PeerAttestation(lambda: [pod], Clock())
    for member in members:
        assert attestation.request(member.node, "job")
    assert [node for node, _ in attestation.recent()] == [member.node for member in members[5:]]
