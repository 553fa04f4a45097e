"""Tests of the taint of noticed nodes, which follows from the stored statuses of SpotPools."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controllers.spot_cluster import START, SpotCluster, make_pool

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import Patch
from convoy_controllers.nodehealth.binding import ReportedNode
from convoy_controllers.nodehealth.observe import node_facts
from convoy_controllers.nodehealth.observed import HardwareFacts
from convoy_controllers.nodemarks import controller
from convoy_controllers.spotpool.noticing import closes_node
from convoy_crds.spotpool_status import NoticeKind
from convoy_crds.terms import TAINT_SPOT_NOTICE

THEIRS = {"key": "example.com/own", "effect": "NoSchedule"}
OURS = {"key": TAINT_SPOT_NOTICE, "effect": "NoSchedule"}


def taints(before: list[dict[str, str]], leaves_soon: bool) -> list[str] | None:
    """Return the keys of the taints that a node gets; None if they stay as they are."""
    node = replace(SpotCluster().add_node("a"), taints=tuple(before))
    facts = HardwareFacts(node=node_facts(ReportedNode(node.name, node.uid, START, node.labels), None, ()))
    observed = controller.Observed(node=node, facts=facts, leaves_soon=leaves_soon)
    patches = [child for child in controller.plan(observed, START).children if isinstance(child, Patch)]
    return [one["key"] for one in patches[0].body["spec"]["taints"]] if patches else None


@pytest.mark.parametrize(
    ("before", "leaves_soon", "after"),
    [
        ([THEIRS], True, ["example.com/own", TAINT_SPOT_NOTICE]),
        ([THEIRS, OURS], True, None),
        ([OURS, THEIRS], False, ["example.com/own"]),
        ([THEIRS], False, None),
    ],
)
def test_the_taint_comes_and_goes_and_those_of_others_stay(
    before: list[dict[str, str]], leaves_soon: bool, after: list[str] | None
) -> None:
    assert taints(before, leaves_soon) == after


@pytest.mark.parametrize(
    ("kind", "rebalance", "closed"),
    [
        (NoticeKind.PREEMPTION, "Ignore", True),
        (NoticeKind.REMOVAL, "Ignore", True),
        (NoticeKind.REBALANCE, "Ignore", False),
        (NoticeKind.REBALANCE, "Cordon", True),
    ],
)
def test_a_notice_closes_its_node(kind: NoticeKind, rebalance: str, closed: bool) -> None:
    cluster = SpotCluster(pool=make_pool(notice={"rebalance": rebalance}))
    cluster.add_node("a")
    cluster.notify("a", seconds=60, kind=kind)
    cluster.step()
    assert closes_node(cluster.notice("a"), cluster.pool.spec.notice) is closed


def test_only_nodes_with_a_changed_notice_are_queued() -> None:
    def stored(notices: list[dict[str, str]], generation: int = 1) -> CachedObject:
        raw = {"metadata": {"generation": generation}, "status": {"notices": notices}}
        return CachedObject("", "pool", "uid", 1, raw)

    one, two = {"node": "a", "state": "Noticed"}, {"node": "b", "state": "Noticed"}
    reader: Any = None
    changed = stored([one, {**two, "state": "Gone"}])
    assert list(controller._noticed_nodes(reader, stored([one, two]), changed)) == [("", "b")]
    assert list(controller._noticed_nodes(reader, stored([one]), None)) == [("", "a")]
    assert list(controller._noticed_nodes(reader, stored([one]), stored([one], 2))) == [("", "a")]
