"""Tests of the nodes that get the agent-ready label."""

from __future__ import annotations

import asyncio

from convoy_controllers.liveness.judge import Liveness
from convoy_controllers.resources import NODES
from convoy_operator import errors, views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.node_labeler import NodeLabeler

from .conftest import FakeApi

LABEL = "convoy.dev/agent-ready"


class Monitor:
    """A fake monitor. The test sets the state of the agents and the results of probes."""

    def __init__(self, liveness: Liveness) -> None:
        self.liveness = liveness
        self.prober = self
        self.dead: set[str] = set()

    def reachable(self, node: str) -> bool:
        return node not in self.dead


class Harness:
    """A node labeler with an API server in memory."""

    def __init__(self, api: FakeApi, *nodes: str) -> None:
        self.api, self.now = api, 101.0
        self.cache = ClusterCache()
        self.monitor = Monitor(Liveness(5, 10, 15))
        self.alive = self.monitor.liveness
        self.alive.start_leading(0.0)
        for name in nodes:
            body = {
                "metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
            self.cache.nodes.upsert(views.node(api.put(NODES, body)))
        self.labeler = NodeLabeler(api, self.cache, self.monitor, 15, clock=lambda: self.now)  # type: ignore[arg-type]

    async def reconcile(self) -> None:
        self.labeler.reconcile_once()
        await asyncio.gather(*self.labeler._patching.values())

    def labels(self, node: str) -> dict[str, str]:
        return self.api.objects["nodes", "", node]["metadata"].get("labels", {})


async def test_a_label_is_patched_once_per_change(api: FakeApi) -> None:
    it = Harness(api, "n")
    it.alive.record_sign("n", 100.0)
    for _ in range(3):
        await it.reconcile()
    assert api.count("patch") == 1
    assert it.labels("n") == {LABEL: "true"}
    assert it.cache.agent_nodes == 1
    it.now = 106.0
    await it.reconcile()
    assert api.count("patch") == 1
    it.monitor.dead.add("n")
    for _ in range(3):
        await it.reconcile()
    assert api.count("patch") == 2
    assert LABEL not in it.labels("n")
    patches = [body for (verb, _, _), body in zip(api.calls, api.bodies, strict=True) if verb == "patch"]
    assert patches == [{"metadata": {"labels": {LABEL: value}}} for value in ("true", None)]
    assert it.cache.agent_nodes == 0


async def test_a_node_that_cannot_be_patched_is_retried_with_back_off(api: FakeApi) -> None:
    it = Harness(api, "n")
    api.fail = lambda verb, plural, name: errors.Forbidden(403, "no")
    start = it.now
    while it.now < start + 60:
        it.alive.record_sign("n", it.now)
        await it.reconcile()
        it.now += 0.5
    assert 4 <= api.count("patch") <= 10


async def test_a_label_is_removed_while_many_are_being_set(api: FakeApi) -> None:
    nodes = [f"n{count}" for count in range(100)]
    it = Harness(api, *nodes)
    it.alive.record_sign("n99", 100.0)
    await it.reconcile()
    it.now = 106.0
    it.monitor.dead.add("n99")
    for node in nodes[:99]:
        it.alive.record_sign(node, 106.0)
    never, patch = asyncio.Event(), api.patch

    async def slow(resource: object, namespace: object, name: str, body: object) -> object:
        if name != "n99":
            await never.wait()
        return await patch(resource, namespace, name, body)  # type: ignore[arg-type]

    api.patch = slow  # type: ignore[method-assign, assignment]
    it.labeler.reconcile_once()
    waiting = dict(it.labeler._patching)
    assert len(waiting) == 17, "sixteen nodes get the label at a time"
    await waiting["n99"]
    assert LABEL not in it.labels("n99")
    never.set()
    await asyncio.gather(*waiting.values())
