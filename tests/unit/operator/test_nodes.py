"""Which nodes carry the label."""

from __future__ import annotations

import asyncio

import pytest

from convoy_controllers.cached import Node
from convoy_controllers.resources import NODES
from convoy_operator import errors, views
from convoy_operator.hub.liveness import Liveness
from convoy_operator.nodes import Labeler, wanted
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
def test_the_label_of_a_node_that_lives(
    heard: float | None, labelled: bool, now: float, expected: bool
) -> None:
    node = Node("n", "u", 1, labelled, ready=True)
    assert wanted(node, liveness(heard), True, 15, now) is expected


@pytest.mark.parametrize(
    ("heard", "ready", "answers", "now", "expected"),
    [
        pytest.param(100.0, True, False, 104.0, True, id="no silence yet"),
        pytest.param(100.0, True, True, 106.0, True, id="silent, but it answers and its kubelet reports"),
        pytest.param(100.0, True, False, 106.0, False, id="silent, and it does not answer"),
        pytest.param(100.0, False, True, 106.0, False, id="silent, and its kubelet does not report"),
    ],
)
def test_the_label_of_a_node_that_may_be_dead(
    heard: float, ready: bool, answers: bool, now: float, expected: bool
) -> None:
    node = Node("n", "u", 1, True, ready=ready)
    assert wanted(node, liveness(heard), answers, 15, now) is expected


def test_no_label_is_taken_while_the_operators_own_network_is_in_doubt() -> None:
    alive = liveness(100.0)
    for other in ("o", "p"):
        alive.heard(other, 100.0)
    assert wanted(Node("n", "u", 1, True), alive, False, 15, 106.0)


def test_no_label_is_taken_while_an_agent_is_away_as_announced() -> None:
    alive = liveness(100.0)
    alive.farewell("n", 100.0)
    assert wanted(Node("n", "u", 1, True), alive, False, 15, 106.0)


class Presence:
    """Who is there, as the test says; a node answers or not."""

    def __init__(self, liveness: Liveness) -> None:
        self.liveness = liveness
        self.witness = self
        self.dead: set[str] = set()

    def answers(self, node: str) -> bool:
        return node not in self.dead


class Harness:
    """A labeler at work on the nodes of a server in memory."""

    def __init__(self, api: FakeApi, *nodes: str) -> None:
        self.api, self.now = api, 101.0
        self.world = World()
        self.presence = Presence(Liveness(5, 10, 15))
        self.alive = self.presence.liveness
        self.alive.begin(0.0)
        for name in nodes:
            body = {
                "metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
            self.world.nodes.upsert(views.node(api.put(NODES, body)))
        self.labeler = Labeler(api, self.world, self.presence, 15, clock=lambda: self.now)  # type: ignore[arg-type]

    async def look(self) -> None:
        self.labeler.look()
        await asyncio.gather(*self.labeler._patching.values())

    def labels(self, node: str) -> dict[str, str]:
        return self.api.objects["nodes", "", node]["metadata"].get("labels", {})


async def test_one_patch_per_change_and_none_when_right(api: FakeApi) -> None:
    it = Harness(api, "n")
    it.alive.heard("n", 100.0)
    for _ in range(3):
        await it.look()
    assert api.count("patch") == 1
    assert it.labels("n") == {LABEL: "true"}
    assert it.world.agent_nodes == 1
    it.now = 106.0
    await it.look()
    assert api.count("patch") == 1
    it.presence.dead.add("n")
    for _ in range(3):
        await it.look()
    assert api.count("patch") == 2
    assert LABEL not in it.labels("n")
    asked = [body for (verb, _, _), body in zip(api.calls, api.bodies, strict=True) if verb == "patch"]
    assert asked == [{"metadata": {"labels": {LABEL: value}}} for value in ("true", None)]
    assert it.world.agent_nodes == 0


async def test_a_node_that_cannot_be_patched_is_tried_ever_more_rarely(api: FakeApi) -> None:
    it = Harness(api, "n")
    api.fail = lambda verb, plural, name: errors.Forbidden(403, "no")
    start = it.now
    while it.now < start + 60:
        it.alive.heard("n", it.now)
        await it.look()
        it.now += 0.5
    assert 4 <= api.count("patch") <= 10


async def test_a_label_is_taken_while_many_are_being_given(api: FakeApi) -> None:
    nodes = [f"n{count}" for count in range(100)]
    it = Harness(api, *nodes)
    it.alive.heard("n99", 100.0)
    await it.look()
    it.now = 106.0
    it.presence.dead.add("n99")
    for node in nodes[:99]:
        it.alive.heard(node, 106.0)
    never, patch = asyncio.Event(), api.patch

    async def slow(resource: object, namespace: object, name: str, body: object) -> object:
        if name != "n99":
            await never.wait()
        return await patch(resource, namespace, name, body)  # type: ignore[arg-type]

    api.patch = slow  # type: ignore[method-assign, assignment]
    it.labeler.look()
    waiting = dict(it.labeler._patching)
    assert len(waiting) == 17, "sixteen at a time are given it"
    await waiting["n99"]
    assert LABEL not in it.labels("n99")
    never.set()
    await asyncio.gather(*waiting.values())
