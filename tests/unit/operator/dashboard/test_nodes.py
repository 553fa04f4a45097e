"""Rows of nodes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operator.dashboard.builders import NOW, ago, health, node

from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.nodehealth import NodeHealth
from convoy_operator.dashboard.core import nodes
from convoy_operator.dashboard.core.objects import keeper


@pytest.mark.parametrize(
    ("given", "kubelet", "agent"),
    [
        ({}, "Ready", "Ready"),
        ({"ready": False}, "NotReady", "Ready"),
        ({"cordoned": True}, "Cordoned", "Ready"),
        ({"ready": False, "cordoned": True}, "NotReady", "Ready"),
        ({"agent_ready": False}, "Ready", "Away"),
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


def test_a_node_without_a_record_says_so() -> None:
    row = nodes.row(node(), None, {}, 0, NOW)
    assert (row.group, len(row.cells)) == (nodes.UNGUARDED, len(nodes.COLUMNS))


def test_of_two_that_claim_a_name_the_one_that_was_decided_last_is_the_node() -> None:
    found = [
        keeper(NodeHealth)(
            {
                "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
                "status": {"since": since, "nodeRef": {"name": "node-1"}},
            }
        )
        for name, since in (("new", ago(hours=1)), ("old", ago(days=9)), ("none", None))
    ]
    assert nodes.by_node(found)["node-1"].metadata.name == "new"
