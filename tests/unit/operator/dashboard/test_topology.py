"""Tests of the section with the topology of a job."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operator.dashboard.builders import condition, health, node, pod, training

from convoy_controllers.cached import Node, Pod
from convoy_crds.trainingjob import TrainingJob
from convoy_operator.dashboard.core import topology
from convoy_operator.dashboard.core.rows import Tone
from convoy_operator.dashboard.core.topology import Box, TopologyView

RACK, ZONE = topology.USUAL_KEYS
KEYS = {"placement": {"topologyKeys": [RACK, ZONE]}}


def labelled(name: str, rack: str, zone: str = "a", **more: Any) -> Node:
    return node(name, labels={RACK: rack, ZONE: zone}, **more)


def pods_on(*names: str | None) -> list[Pod]:
    return [
        pod(f"gpt-w-{number}", node=name, phase="Running" if name else "Pending")
        for number, name in enumerate(names)
    ]


def shown(job: TrainingJob, pods: list[Pod], nodes: list[Node] | None, **healths: Any) -> TopologyView:
    known = None if nodes is None else {one.name: one for one in nodes}
    found = topology.view(job, pods, known, healths)
    assert found is not None
    return found


def outline(boxes: tuple[Box, ...]) -> list[Any]:
    """Return kind, name and text of each box, with what is inside."""
    return [(f"{one.kind} {one.name}", one.text, outline(one.inside)) for one in boxes]


def marks(boxes: tuple[Box, ...]) -> dict[str, list[str]]:
    """Return the texts of the marks of all boxes that have some, by name of the box."""
    found = {}
    for one in boxes:
        found |= marks(one.inside)
        if one.marks:
            found[one.name] = [mark.text for mark in one.marks]
    return found


def test_few_ranks_are_shown_one_by_one_in_zones_racks_and_nodes() -> None:
    job = training(4, 2, KEYS, roles=[{"name": "w", "desired": 4, "order": [2, 0, 1, 3]}])
    nodes = [labelled("n1", "r1"), labelled("n2", "r2"), labelled("n3", "r2", "b"), labelled("n4", "r1")]
    found = shown(job, pods_on("n1", "n2", "n4", "n3"), nodes)
    # The order of the ranks is that of the pods 2, 0, 1, 3. Racks of two zones may have the same name.
    assert outline(found.boxes) == [
        (
            "zone a",
            "3 nodes, ranks 0-5",
            [
                ("rack r1", "2 nodes, ranks 0-3", [("node n4", "", []), ("node n1", "", [])]),
                ("rack r2", "1 node, ranks 4-5", [("node n2", "", [])]),
            ],
        ),
        ("zone b", "1 node, ranks 6-7", [("rack r2", "1 node, ranks 6-7", [("node n3", "", [])])]),
    ]
    assert marks(found.boxes)["n4"] == ["rank 0", "rank 1"]
    (first, _) = found.boxes[0].inside[0].inside[0].marks
    assert (first.tone, first.href) == (Tone.PLAIN, "/jobs/team/gpt?rank=0#logs")
    assert (found.waiting, found.note) == ("", "")


SLOW = {"cause": "Thermal", "place": "rank", "ranks": [5], "nodes": ["n3"]}


def test_slow_ranks_and_unhealthy_nodes_are_marked() -> None:
    nodes = [labelled("n1", "r1", ready=False), labelled("n2", "r1", cordoned=True), labelled("n3", "r2")]
    job = training(3, 2, KEYS, phase="Running", stragglers=[SLOW])
    found = shown(job, pods_on("n1", "n2", "n3"), nodes, n2=health("Draining"), n3=health("Qualified"))
    texts = marks(found.boxes)
    assert texts["n1"] == ["NotReady", "rank 0", "rank 1"]
    assert texts["n2"] == ["Cordoned", "Draining", "rank 2", "rank 3"]
    assert texts["n3"] == ["rank 5: Thermal", "rank 4"]
    slow = found.boxes[0].inside[1].inside[0].marks[0]
    assert (slow.tone, slow.href) == (Tone.WARN, "/jobs/team/gpt?rank=5#logs")
    over = shown(training(3, 2, KEYS, phase="Succeeded", stragglers=[SLOW]), pods_on("n1", "n2", "n3"), nodes)
    assert marks(over.boxes)["n3"] == ["rank 4", "rank 5"]
    gone = shown(job, pods_on("n1", "n2", "n3"), nodes[:2])
    assert marks(gone.boxes)["n3"] == ["Deleted", "rank 5: Thermal", "rank 4"]


def many(racks: int, per_rack: int) -> tuple[list[Pod], list[Node]]:
    """Return one pod on each node, and the nodes."""
    nodes = [labelled(f"n{number}", f"r{number // per_rack}") for number in range(racks * per_rack)]
    return pods_on(*(one.name for one in nodes)), nodes


def test_of_many_ranks_each_node_has_one_text() -> None:
    pods, nodes = many(5, 10)
    found = shown(training(50, 8, KEYS, phase="Running", stragglers=[SLOW]), pods, nodes)
    rack = found.boxes[0].inside[0]
    assert (rack.name, rack.text, len(rack.inside)) == ("r0", "10 nodes, ranks 0-79", 10)
    assert [(one.name, one.text) for one in rack.inside][:2] == [("n0", "ranks 0-7"), ("n1", "ranks 8-15")]
    assert marks(found.boxes) == {"n0": ["rank 5: Thermal"]} and found.note == ""


def test_of_a_thousand_ranks_racks_and_marked_nodes_are_shown() -> None:
    pods, nodes = many(25, 40)
    nodes[40:50] = [labelled(f"n{number}", "r1", ready=False) for number in range(40, 50)]
    job = training(1000, 1, KEYS, phase="Running", stragglers=[SLOW])
    found = shown(job, pods, nodes)
    racks = found.boxes[0].inside
    assert [one.name for one in racks] == [f"r{number}" for number in range(25)]
    assert (racks[0].text, [one.name for one in racks[0].inside]) == ("40 nodes, ranks 0-39", ["n5"])
    assert [one.name for one in racks[1].inside] == [f"n{number}" for number in range(40, 46)]
    assert [mark.text for mark in racks[1].marks] == ["4 more nodes with marks"]
    assert found.note == "Of 1,000 nodes, only nodes with a mark have boxes."


def test_too_many_racks_are_shown_by_zone() -> None:
    pods, nodes = many(100, 2)
    found = shown(training(200, 1, KEYS), pods, nodes)
    assert outline(found.boxes) == [("zone a", "200 nodes, ranks 0-199", [])]
    assert "There are too many racks to show." in found.note


def test_without_labels_a_large_job_still_names_its_marked_nodes() -> None:
    nodes = [node(f"n{number}", ready=number > 0) for number in range(100)]
    found = shown(training(100, 1, KEYS), pods_on(*(one.name for one in nodes)), nodes)
    assert outline(found.boxes) == [
        (
            "zone -",
            "100 nodes, ranks 0-99",
            [("rack -", "100 nodes, ranks 0-99", [("node n0", "rank 0", [])])],
        )
    ]


@pytest.mark.parametrize(
    ("conditions", "message", "why"),
    [
        ([condition("Scheduled", "False", "NoRoomTogether")], "", "NoRoomTogether: m"),
        (
            [
                condition("Scheduled", "False", "Unschedulable"),
                condition("GangScheduled", "False", "GangWaiting"),
            ],
            "0/3 nodes",
            "GangWaiting: m",
        ),
        ([], "0/3 nodes are available", "0/3 nodes are available"),
        ([], "", "the scheduler has not placed them yet"),
    ],
)
def test_pods_without_a_node_are_shown_with_the_reason(conditions: list[Any], message: str, why: str) -> None:
    pods = pods_on("n1", None)
    pods[1] = pod("gpt-w-1", node=None, phase="Pending", unschedulable=message)
    job = training(3, 1, KEYS, phase="Pending", conditions=conditions)
    found = shown(job, pods, [labelled("n1", "r1")])
    assert found.waiting == f"2 pods wait for a node (gpt-w-1, gpt-w-2): {why}"
    assert marks(found.boxes) == {"n1": ["rank 0"]}


@pytest.mark.parametrize("phase", ["Suspended", "Suspending", "Succeeded", "Failed"])
def test_a_job_that_shall_have_no_pods_waits_for_none(phase: str) -> None:
    found = shown(training(2, 1, KEYS, phase=phase), [], [])
    assert (found.boxes, found.waiting, found.note) == ((), "", topology.NO_NODES)


def test_a_section_is_shown_only_with_content() -> None:
    plain = training(2, 1)
    assert topology.view(plain, pods_on("n1", "n2"), {"n1": node("n1"), "n2": node("n2")}, {}) is None
    found = shown(plain, pods_on("n1", "n2"), [labelled("n1", "r1"), labelled("n2", "r2")])
    assert [one.name for one in found.boxes[0].inside] == ["r1", "r2"]
    gang = training(2, 1, placement={"gang": "Native", "group": "gpt-1"})
    assert [one.name for one in shown(gang, pods_on("n1", "n2"), [node("n1"), node("n2")]).boxes] == [
        "n1",
        "n2",
    ]


def test_users_who_may_not_list_nodes_see_the_domains_of_the_status() -> None:
    ranks = [{"name": "r1", "ranks": 3}, {"name": "r2", "ranks": 1}]
    placed = {"keys": [{"key": RACK, "domains": 2, "ranks": ranks}], "hops": 3, "summary": "2 racks, 3 hops"}
    found = shown(training(4, 1, KEYS, placement=placed), pods_on("n1", "n2", "n3", "n4"), None)
    assert outline(found.boxes) == [("rack r1", "3 ranks", []), ("rack r2", "1 rank", [])]
    assert found.note == topology.NOT_ALLOWED
    assert shown(training(4, 1, KEYS), [], None).boxes == ()


def test_facts_show_packing_gang_queue_claims_and_the_shortest_ring() -> None:
    job = training(
        4,
        1,
        {"placement": {"topologyKeys": [RACK], "pack": "Required"}},
        placement={
            "gang": "Native",
            "group": "gpt-1",
            "queue": {"name": "team-a", "state": "Admitted", "clusterQueue": "research", "evictions": 2},
            "claims": [{"job": "low", "namespace": "b", "role": "w", "replica": n} for n in (3, 4)],
            "keys": [{"key": RACK, "domains": 2}],
            "hops": 8,
        },
        conditions=[condition("GangScheduled", "False", "GangIgnored")],
    )
    nodes = [labelled("n1", "r1"), labelled("n2", "r2"), labelled("n3", "r1"), labelled("n4", "r2")]
    found = shown(job, pods_on("n1", "n2", "n3", "n4"), nodes)
    assert [(one.label, one.text, one.tone) for one in found.facts] == [
        ("Packing", "Required: all pods in one rack", Tone.PLAIN),
        ("Domains", "2 racks", Tone.PLAIN),
        ("Ring hops", "8 (6 at best)", Tone.PLAIN),
        ("Gang", "Native, PodGroup gpt-1: GangIgnored", Tone.WARN),
        ("Queue", "team-a: Admitted by research, 2 evictions so far", Tone.GOOD),
        ("Room made by", "2 pods of b/low", Tone.PLAIN),
    ]
    partly = shown(job, pods_on("n1", "n2", "n3", None), nodes)
    assert "Ring hops" in [one.label for one in partly.facts]
    assert "at best" not in next(one.text for one in partly.facts if one.label == "Ring hops")
