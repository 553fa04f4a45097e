"""Which nodes carry the label."""

from __future__ import annotations

import pytest

from convoy_operator import errors, views
from convoy_operator.hub.liveness import Liveness
from convoy_operator.nodes import Labeler, wanted
from convoy_operator.resources import NODES
from convoy_operator.views import Node
from convoy_operator.world import World

from .conftest import FakeApi

LABEL = "convoy.dev/agent-ready"


def liveness(heard: float | None) -> Liveness:
    alive = Liveness(5, 10, 15)
    alive.begin(0.0)
    if heard is not None:
        alive.heard("n", heard)
    return alive


@pytest.mark.parametrize(
    ("heard", "labelled", "now", "expected"),
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
def test_the_label(heard: float | None, labelled: bool, now: float, expected: bool) -> None:
    assert wanted(Node("n", "u", 1, labelled), liveness(heard), 15, now) is expected


async def test_one_patch_per_change_and_none_when_right(api: FakeApi) -> None:
    world, alive, now = World(), liveness(100.0), 101.0
    world.nodes.upsert(views.node(api.put(NODES, {"metadata": {"name": "n"}})))
    labeler = Labeler(api, world, alive, 15, clock=lambda: now)
    for _ in range(3):
        await labeler.look()
    assert api.count("patch") == 1
    assert api.objects["nodes", "", "n"]["metadata"]["labels"] == {LABEL: "true"}
    assert world.agent_nodes == 1
    now = 200.0
    for _ in range(3):
        await labeler.look()
    assert api.count("patch") == 2
    assert LABEL not in api.objects["nodes", "", "n"]["metadata"]["labels"]
    assert world.agent_nodes == 0


async def test_a_node_that_cannot_be_patched_is_tried_ever_more_rarely(api: FakeApi) -> None:
    world, now = World(), 0.0
    alive = liveness(None)
    world.nodes.upsert(views.node(api.put(NODES, {"metadata": {"name": "n"}})))
    api.fail = lambda verb, plural, name: errors.Forbidden(403, "no")
    labeler = Labeler(api, world, alive, 15, clock=lambda: now)
    while now < 60:
        alive.heard("n", now)
        await labeler.look()
        now += 0.5
    assert 4 <= api.count("patch") <= 10
