"""Tests of the view of a node in plans, and of the rule for the agent-ready label."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.cached import Node
from convoy_controllers.liveness.judge import Liveness
from convoy_controllers.liveness.node_view import NodeProbe, node_view, wants_agent_ready
from convoy_controllers.views import NodeView


class TestNodeView:
    NODE = Node("n", "u", 1, True, ready=True)
    PROBE = NodeProbe(since=90.0, reachable=False, pods_probed=True, lease_seconds=12.0)

    def view(self, **given: Any) -> NodeView:
        given = {
            "node": self.NODE,
            "silent": 0.0,
            "since": 0.0,
            "probe": None,
            "attested_by": frozenset(),
            **given,
        }
        return node_view("n", **given)

    def test_view_of_a_healthy_node(self) -> None:
        assert self.view() == NodeView("n")

    def test_view_of_a_deleted_node(self) -> None:
        view = self.view(node=None)
        assert (view.exists, view.ready, view.agent_ready) == (False, False, False)

    def test_view_of_the_node_object(self) -> None:
        assert not self.view(node=Node("n", "u", 1, True, ready=False)).ready
        assert not self.view(node=Node("n", "u", 1, False, ready=True)).agent_ready
        assert self.view(node=Node("n", "u", 1, True, ready=True, cordoned=True)).cordoned

    def test_view_of_a_silent_node_contains_probe_and_attestations(self) -> None:
        view = self.view(silent=6.0, since=91.0, probe=self.PROBE, attested_by=frozenset({"m"}))
        assert (view.silent_seconds, view.silent_since) == (6.0, 90.0)
        assert (view.pods_reachable, view.lease_seconds, view.attested_by) == (False, 12.0, {"m"})

    def test_view_ignores_an_unbelieved_silence(self) -> None:
        assert self.view(since=91.0, probe=self.PROBE) == NodeView("n")

    def test_unprobed_silent_node_counts_as_reachable(self) -> None:
        view = self.view(silent=6.0, since=91.0)
        assert (view.silent_since, view.pods_reachable, view.lease_seconds) == (91.0, True, 0.0)

    def test_probe_of_the_agent_address_alone_does_not_prove_pods_unreachable(self) -> None:
        assert self.view(silent=6.0, probe=NodeProbe(90.0, reachable=False, pods_probed=False)).pods_reachable


def liveness(last_sign: float | None) -> Liveness:
    alive = Liveness(5, 10, 15)
    alive.start_leading(0.0)
    if last_sign is not None:
        alive.record_sign("n", last_sign)
    return alive


@pytest.mark.parametrize(
    ("last_sign", "labelled", "now", "expected"),
    [
        pytest.param(100.0, False, 101.0, True, id="an agent has come"),
        pytest.param(None, False, 1.0, False, id="none has ever come"),
        pytest.param(None, True, 5.0, True, id="a new leader does not judge yet"),
        pytest.param(None, True, 11.0, False, id="its time to come is up"),
        pytest.param(100.0, True, 110.0, True, id="silent, but no longer than an update takes"),
        pytest.param(100.0, True, 116.0, False, id="silent for too long"),
        pytest.param(100.0, False, 110.0, False, id="a silent one is not given the label"),
    ],
)
def test_label_of_a_living_node(last_sign: float | None, labelled: bool, now: float, expected: bool) -> None:
    node = Node("n", "u", 1, labelled, ready=True)
    assert wants_agent_ready(node, liveness(last_sign), True, 15, now) is expected


@pytest.mark.parametrize(
    ("last_sign", "ready", "reachable", "now", "expected"),
    [
        pytest.param(100.0, True, False, 104.0, True, id="no silence yet"),
        pytest.param(100.0, True, True, 106.0, True, id="silent, but it answers and its kubelet reports"),
        pytest.param(100.0, True, False, 106.0, False, id="silent, and it does not answer"),
        pytest.param(100.0, False, True, 106.0, False, id="silent, and its kubelet does not report"),
    ],
)
def test_label_of_a_node_that_may_be_dead(
    last_sign: float, ready: bool, reachable: bool, now: float, expected: bool
) -> None:
    node = Node("n", "u", 1, True, ready=ready)
    assert wants_agent_ready(node, liveness(last_sign), reachable, 15, now) is expected


def test_no_label_is_removed_while_the_operators_network_is_in_doubt() -> None:
    alive = liveness(100.0)
    for other in ("o", "p"):
        alive.record_sign(other, 100.0)
    assert wants_agent_ready(Node("n", "u", 1, True), alive, False, 15, 106.0)


def test_no_label_is_removed_during_an_announced_absence() -> None:
    alive = liveness(100.0)
    alive.record_farewell("n", 100.0)
    assert wants_agent_ready(Node("n", "u", 1, True), alive, False, 15, 106.0)
