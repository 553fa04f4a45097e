"""Tests of attestations: which agents may attest a node, and for how long the hub counts an attestation."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from convoy_controllers.liveness.attestation import (
    REMEMBER_SECONDS,
    AttestationRequests,
    Attestations,
    may_attest,
)
from convoy_controllers.liveness.fence import FENCE_SECONDS


@dataclass(frozen=True)
class Slot:
    node: str


@dataclass(frozen=True)
class Assigned:
    incarnation: int
    members: tuple[Slot, ...]


def plan(incarnation: int, *nodes: str) -> Assigned:
    return Assigned(incarnation, tuple(map(Slot, nodes)))


@pytest.mark.parametrize(
    ("plans", "attests"),
    [
        pytest.param([], False, id="no plan of that job"),
        pytest.param([plan(1, "one", "two")], True, id="a member"),
        pytest.param([plan(1, "one", "three")], False, id="a stranger"),
        pytest.param([plan(2, "one", "three"), plan(1, "one", "two")], False, id="the job went on without"),
        pytest.param([plan(1, "one", "three"), plan(2, "one", "two")], True, id="taken in again"),
    ],
)
def test_only_members_of_a_plan_are_attested(plans: list[Assigned], attests: bool) -> None:
    assert may_attest(plans, "two") is attests


def test_agent_keeps_a_request_longer_than_the_hub_counts_it() -> None:
    requests = AttestationRequests()
    requests.record("two", 100.0)
    assert REMEMBER_SECONDS > FENCE_SECONDS
    assert requests.recent(100.0 + REMEMBER_SECONDS) == [("two", REMEMBER_SECONDS)]
    assert requests.recent(100.1 + REMEMBER_SECONDS) == []


def test_attestations_count_from_the_request_for_the_fencing_time() -> None:
    attestations = Attestations()
    attestations.record("a", [("lost", 15.0), ("stale", 21.0), ("a", 0.0)], 100.0)
    attestations.record("b", [("lost", 0.0)], 101.0)
    assert attestations.voters("lost", 105.0) == {"a", "b"}
    assert attestations.voters("lost", 106.0) == {"b"}
    assert all(attestations.voters(node, 100.0) == set() for node in ("stale", "a", "unknown"))
    attestations.prune(106.0)
    assert attestations._requested == {"lost": {"b": 101.0}}
    attestations.prune(122.0)
    assert attestations._requested == {}
