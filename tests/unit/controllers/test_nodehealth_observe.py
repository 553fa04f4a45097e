"""Tests of the observations of hardware: its node, its policy, and the reports about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from convoy_controllers.nodehealth.binding import ReportedNode, bind, hardware_name
from convoy_controllers.nodehealth.observe import (
    Hardware,
    PlacedJob,
    by_node,
    fleet,
    in_order,
    member,
    unknown,
)
from convoy_controllers.nodehealth.observed import Fleet, Member, Suspicion
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.nodehealth import NodeHealth

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
N1 = ReportedNode(
    "n1", "u1", NOW - 60 * MINUTE, {"pool": "a"}, "AB12", "boot", accelerators=(), agent_connected=True
)
N2 = replace(N1, name="n2", uid="u2", machine_id="cd34")


def policy(name: str, priority: int = 0, **labels: str) -> GuardPolicy:
    spec = {"priority": priority, "selector": {"matchLabels": labels}}
    return GuardPolicy.model_validate({"metadata": {"name": name}, "spec": spec})


def health(name: str, **status: Any) -> NodeHealth:
    return NodeHealth.model_validate({"metadata": {"name": name}, "status": status})


@dataclass(frozen=True)
class ObservedAll:
    """All hardware, grouped by the policy that decides about it."""

    hardware: Mapping[str, str]
    """Name of the NodeHealth of the hardware in each node, by node."""
    fleets: tuple[Fleet, ...]
    alone: tuple[Member, ...]
    """Hardware without a policy."""
    unknown: Mapping[str, str]
    strangers: frozenset[str]
    """Nodes without a NodeHealth."""


def observe_all(
    policies: list[GuardPolicy] | None = None,
    healths: list[NodeHealth] | None = None,
    nodes: list[ReportedNode] | None = None,
    jobs: list[PlacedJob] | None = None,
    noticed: dict[str, tuple[Suspicion, ...]] | None = None,
    **suspicions: tuple[Suspicion, ...],
) -> ObservedAll:
    stored, there = healths or [], nodes if nodes is not None else [N1, N2]
    bindings = bind(there, stored)
    rules = in_order(policies if policies is not None else [policy("p")])
    found = Hardware(
        policies=rules,
        healths={one.metadata.name: one for one in stored},
        bindings=bindings,
        jobs=by_node(jobs or []),
        suspicions=suspicions,
        noticed=noticed or {},
    )
    alone = [name for name in found.healths if found.policy_of(name) is None]
    return ObservedAll(
        hardware=bindings.hardware,
        fleets=tuple(fleet(one, found, NOW) for one in rules),
        alone=tuple(member(name, None, found, NOW) for name in alone),
        unknown={name: node for one in rules for name, node in unknown(one, found).items()},
        strangers=frozenset(node.name for node in there if node.name not in bindings.hardware),
    )


def test_hardware_is_named_by_accelerators_else_by_machine() -> None:
    gpus = replace(N1, accelerators=("GPU-b", "GPU-a"))
    assert hardware_name(gpus) == hardware_name(replace(gpus, accelerators=("GPU-a", "GPU-b"), name="x"))
    assert hardware_name(gpus) != hardware_name(replace(gpus, accelerators=("GPU-a",)))
    assert len(hardware_name(gpus)) == 32
    assert hardware_name(N1) == "ab12"
    assert hardware_name(replace(N1, accelerators=None)) == "", "it may have some"


def test_reported_hardware_without_a_stored_object_is_unknown() -> None:
    assert observe_all(nodes=[N1, replace(N2, accelerators=None)]).unknown == {"ab12": "n1"}
    assert observe_all(healths=[health("ab12")], nodes=[N1]).unknown == {}


def test_node_without_a_report_keeps_its_stored_hardware() -> None:
    stored = health("ab12", nodeRef={"name": "n1", "uid": "u1"})
    found = observe_all(healths=[stored], nodes=[replace(N1, accelerators=None)])
    assert found.hardware == {"n1": "ab12"} and found.unknown == {}
    stranger = observe_all(healths=[stored], nodes=[replace(N1, accelerators=None, uid="made anew")])
    assert stranger.hardware == {} and stranger.strangers == {"n1"}


def test_policy_with_the_highest_priority_then_first_name_applies() -> None:
    several = [policy("b"), policy("a"), policy("high", 5, pool="a"), policy("other", 9, pool="b")]
    found = observe_all(several, [health("ab12"), health("cd34")], [N1, replace(N2, labels={})])
    members = {one.policy.metadata.name: [each.name for each in one.members] for one in found.fleets}
    assert members == {"other": [], "high": ["ab12"], "a": ["cd34"], "b": []}


def test_absent_hardware_stays_with_its_policy() -> None:
    away, nobodys = health("gone", policy="p"), health("lone", policy="deleted")
    found = observe_all(healths=[away, nobodys], nodes=[])
    assert [each.name for each in found.fleets[0].members] == ["gone"]
    assert [each.name for each in found.alone] == ["lone"]
    assert found.fleets[0].members[0].facts.node is None


def test_one_of_two_nodes_with_the_same_hardware_represents_it() -> None:
    twin = replace(N2, machine_id=N1.machine_id, agent_connected=False)
    found = observe_all(healths=[health("ab12")], nodes=[N1, twin])
    assert found.hardware == {"n1": "ab12"} and found.strangers == {"n2"}


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        ((1, 5), NOW - 5 * MINUTE),
        ((1, None), None),
        ((None, None), None),
    ],
)
def test_saved_time_of_a_node_is_that_of_its_last_saved_job(
    saved: tuple[int | None, ...], expected: datetime | None
) -> None:
    jobs = [
        PlacedJob(f"ns/{i}", {"n1": 1}, saved=None if ago is None else NOW - ago * MINUTE)
        for i, ago in enumerate(saved)
    ]
    (one, *_) = observe_all(healths=[health("ab12")], nodes=[N1], jobs=jobs).fleets[0].members
    assert one.facts.saved == expected


def test_facts_contain_jobs_losses_and_unswappable_jobs() -> None:
    jobs = [
        PlacedJob("ns/a", {"n1": 2, "n2": 1}, gpus=24, saved=NOW - MINUTE, formed=NOW - 9 * MINUTE),
        PlacedJob("ns/b", {"n1": 1}, gpus=8, swappable=False, formed=NOW - 2 * MINUTE),
    ]
    suspicion = Suspicion("ns/a", NOW - MINUTE, NOW, 1.3, 10.0)
    late = Suspicion("ns/a", NOW - MINUTE, NOW, 1.1, 2.0, "Input")
    healths = [health("ab12"), health("cd34")]
    found = observe_all(healths=healths, jobs=jobs, noticed={"n2": (late,)}, n1=(suspicion,))
    facts = {each.name: each.facts for each in found.fleets[0].members}
    first = facts["ab12"]
    assert first.node is not None
    assert (first.node.pods, first.node.jobs, first.node.gpus) == (3, ("ns/a", "ns/b"), 32)
    assert first.node.unswappable == ("ns/b",) and first.suspicions == (suspicion,)
    assert first.unsaved == 60 * 24 + 120 * 8
    second = facts["cd34"]
    assert second.node is not None and second.node.unswappable == () and second.suspicions == ()
    assert (first.noticed, second.noticed) == ((), (late,))
    assert not second.idle and observe_all(healths=[health("ab12")]).fleets[0].members[0].facts.idle


def test_rack_is_the_label_that_the_policy_names() -> None:
    rack = GuardPolicy.model_validate({"metadata": {"name": "p"}, "spec": {"budgets": {"rackLabel": "room"}}})
    node = replace(N1, labels={"room": "r7", "topology.kubernetes.io/rack": "x"})
    (one,) = observe_all([rack], [health("ab12")], [node]).fleets[0].members
    assert one.facts.node is not None and one.facts.node.rack == "r7"
    (bare,) = observe_all([], [health("ab12")], [node]).alone
    assert bare.facts.node is not None and bare.facts.node.rack == "x"
