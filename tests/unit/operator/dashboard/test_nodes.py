"""Tests of the table rows of nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.operator.dashboard.builders import NOW, ago, health, node

from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.nodehealth import NodeHealth
from convoy_operator.dashboard.core import nodes
from convoy_operator.dashboard.core.objects import ParsedObject, parser_of


@pytest.mark.parametrize(
    ("given", "kubelet", "agent"),
    [
        ({}, "Ready", "Ready"),
        ({"ready": False}, "NotReady", "Ready"),
        ({"cordoned": True}, "Cordoned", "Ready"),
        ({"ready": False, "cordoned": True}, "NotReady", "Ready"),
        ({"agent_ready": False}, "Ready", "NotReady"),
    ],
)
def test_a_node_in_a_row(given: dict[str, Any], kubelet: str, agent: str) -> None:
    policy = GuardPolicy.model_validate({"metadata": {"name": "p"}, "status": {"breaker": {"state": "Open"}}})
    one = health("Suspect", policy="p", message="slow")
    row = nodes.row(node(**given), one, {"p": policy}, 3, NOW)
    assert [cell.text for cell in row.cells] == [
        "node-1",
        kubelet,
        agent,
        "Suspect",
        "2h",
        "r1",
        "3",
        "Open",
        "slow",
    ]


def test_a_node_without_a_nodehealth_is_unguarded() -> None:
    row = nodes.row(node(), None, {}, 0, NOW)
    assert (row.group, len(row.cells)) == (nodes.UNGUARDED, len(nodes.COLUMNS))


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([("a", "u-node-1", {"hours": 9})], "a"),
        ([("a", "u-before", {"hours": 1})], None),
        # The newest NodeHealth belongs to removed hardware. It must not hide the NodeHealth of the current
        # hardware.
        ([("gone", "u-before", {"hours": 1}), ("here", "u-node-1", {"days": 9})], "here"),
        ([("here", "u-node-1", {"days": 9}), ("gone", "u-before", {"hours": 1})], "here"),
        ([("by-name", "", {"hours": 1}), ("here", "u-node-1", {"days": 9})], "here"),
        ([("old", "", {"days": 9}), ("new", "", {"hours": 1}), ("none", "", None)], "new"),
        ([("elsewhere", "u-node-1", {"hours": 1}, "node-2")], None),
    ],
)
def test_a_node_is_matched_to_hardware_by_uid(records: list[Any], found: str | None) -> None:
    parsed = [
        parser_of(NodeHealth)(
            {
                "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
                "status": {
                    "since": ago(**since) if since else None,
                    "nodeRef": {"name": (*where, "node-1")[0], "uid": uid},
                },
            }
        )
        for name, uid, since, *where in records
    ]
    live = [replace(node(), uid="u-node-1")]
    one = nodes.by_node(parsed, live).get("node-1")
    assert (one.metadata.name if one else None) == found


def test_a_deleted_node_is_matched_to_its_newest_hardware() -> None:
    parsed = [
        ParsedObject("", name, name, 1, health("Suspect", name, since=ago(**since)))
        for name, since in (("old", {"days": 9}), ("new", {"hours": 1}))
    ]
    found = nodes.last_of(parsed, "node-1")
    assert found is not None and found.metadata.name == "new"
    assert nodes.last_of(parsed, "node-2") is None and nodes.by_node(parsed, []) == {}
