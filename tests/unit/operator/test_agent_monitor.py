"""Tests of silent agents: the jobs and delays that they add to the queue, and the nodes that plans see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from convoy_controllers.keys import Key
from convoy_controllers.views import NodeView, PodView
from convoy_operator import views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.hub.agent_monitor import AgentMonitor
from convoy_operator.hub.context import HubContext
from convoy_operator.metrics import Metrics
from convoy_operator.settings import Settings

from .conftest import FakeApi

WALL = 1e6
LABELS = {"convoy.dev/agent-ready": "true"}
Virtual = Callable[[Coroutine[Any, Any, Any]], Any]


class Harness:
    """The agent monitor in virtual time, with a cluster cache that the test fills."""

    def __init__(self, api: FakeApi) -> None:
        self.loop = asyncio.get_running_loop()
        self.start = self.loop.time()
        self.cache = ClusterCache()
        self.metrics = Metrics()
        self.added: list[tuple[float, str, float]] = []
        self.dead: set[str] = set()
        context = HubContext(
            cache=self.cache,
            queue=self,  # type: ignore[arg-type]
            gateway=api,
            metrics=self.metrics,
            settings=Settings(),
            clock=self.loop.time,
            wall=lambda: WALL + self.time(),
        )
        self.monitor = AgentMonitor(context, agent_address=lambda node: "", connect=self.connect)
        self.monitor.start_leading()
        self.beating: set[str] = set()
        self.tasks = [asyncio.create_task(self.monitor.run()), asyncio.create_task(self.heartbeat())]

    def time(self) -> float:
        return round(self.loop.time() - self.start, 3)

    def add(self, key: Key, delay: float = 0.0, *, high: bool = True) -> None:
        self.added.append((self.time(), key.name, delay))

    def wakes(self) -> list[tuple[float, str, float]]:
        drained, self.added = self.added, []
        return drained

    async def connect(self, address: str, port: int) -> bool:
        if address in self.dead:
            await asyncio.sleep(0.5)
        return address not in self.dead

    async def heartbeat(self) -> None:
        while True:
            for node in self.beating:
                self.monitor.record_sign(node)
            await asyncio.sleep(1.0)

    async def until(self, time: float) -> None:
        await asyncio.sleep(time - self.time())

    def node(self, name: str) -> None:
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        metadata = {"name": name, "uid": name, "resourceVersion": "1", "labels": LABELS}
        self.cache.nodes.upsert(views.node({"metadata": metadata, "status": status}))

    def pod(self, name: str, job: str, node: str, ip: str, phase: str = "Running") -> PodView:
        parent = {
            "metadata": {"name": job, "namespace": "ns", "uid": job, "resourceVersion": "1"},
            "spec": {},
        }
        self.cache.jobs.upsert(views.cached_object(parent))
        metadata = {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "resourceVersion": "1",
            "labels": {"convoy.dev/job": job},
            "ownerReferences": [{"uid": job, "controller": True}],
        }
        item = views.pod(
            {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase, "podIP": ip}}
        )
        self.cache.pods.upsert(item)
        return item.view

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def test_a_dead_node_becomes_silent_and_unreachable(virtual: Virtual, api: FakeApi) -> None:
    async def run() -> None:
        it = Harness(api)
        for node in ("n", "m"):
            it.node(node)
        pod = it.pod("a", "job", "n", "10.0.0.1")
        it.pod("b", "elsewhere", "m", "10.0.0.2")
        it.pod("c", "over", "n", "", "Succeeded")
        it.beating = {"n", "m"}
        await it.until(20.5)
        it.wakes()
        it.beating, it.dead = {"m"}, {"10.0.0.1"}

        await it.until(25.0)
        assert it.wakes() == []
        assert it.monitor.nodes((pod,))["n"] == NodeView("n", labels=LABELS), "5 s do not count as silence"
        await it.until(25.3)
        ((_, job, delay),) = it.wakes()
        assert (job, delay) == ("job", 0.0), "the running job at once, and no deleted or finished job"
        view = it.monitor.nodes((pod,))["n"]
        assert view.silent_seconds == pytest.approx(5.3)
        assert view.silent_since == pytest.approx(WALL + 20.0)
        assert not view.pods_reachable, "the prober found the node dead before the agent counted as silent"
        assert it.metrics.nodes_silent._value.get() == 1
        await it.until(35.3)
        again = it.wakes()
        assert len(again) == 10 and {entry[1:] for entry in again} == {("job", 0.15)}
        assert not it.monitor.connected("n") and it.monitor.connected("m")

        it.monitor.record_sign("n")
        assert it.wakes() == [(35.3, "job", 0.15)]
        assert it.monitor.nodes((pod,))["n"] == NodeView("n", labels=LABELS)
        await it.until(36.0)
        assert it.metrics.nodes_silent._value.get() == 0 and it.wakes() == []
        await it.stop()

    virtual(run())


def test_a_silent_node_that_turns_unreachable_wakes_its_jobs_immediately(
    virtual: Virtual, api: FakeApi
) -> None:
    async def run() -> None:
        it = Harness(api)
        it.node("n")
        pod = it.pod("a", "job", "n", "10.0.0.1")
        it.pod("b", "other", "m", "10.0.0.2")
        it.beating = {"m"}
        it.monitor.record_sign("n")
        await it.until(15.0)
        assert it.monitor.nodes((pod,))["n"].pods_reachable
        it.wakes()
        it.dead = {"10.0.0.1"}
        await it.until(17.0)
        assert ("job", 0.0) in {entry[1:] for entry in it.wakes()}
        assert not it.monitor.nodes((pod,))["n"].pods_reachable
        await it.stop()

    virtual(run())


def test_a_new_leader_detects_an_agent_lost_with_the_previous_leader(virtual: Virtual, api: FakeApi) -> None:
    async def run() -> None:
        it = Harness(api)
        it.node("n")
        pod = it.pod("a", "job", "n", "10.0.0.1")
        it.pod("b", "other", "m", "10.0.0.2")
        it.beating = {"m"}
        it.dead = {"10.0.0.1"}
        await it.until(5.4)
        assert it.monitor.unsettled({"n"}) == pytest.approx(0.1)
        assert it.monitor.nodes((pod,))["n"] == NodeView("n", labels=LABELS)
        assert [job for _, job, _ in it.wakes() if job == "job"] == []
        await it.until(5.7)
        assert it.monitor.unsettled({"n"}) == 0.0
        assert [(job, delay) for _, job, delay in it.wakes() if job == "job"] == [("job", 0.0)]
        view = it.monitor.nodes((pod,))["n"]
        assert (view.silent_seconds, view.pods_reachable) == (pytest.approx(5.7), False)
        await it.stop()

    virtual(run())


def test_a_never_connected_agent_is_silent_once_its_node_has_a_pod(virtual: Virtual, api: FakeApi) -> None:
    """Let a node without pods die together with the previous leader. The new leader must notice the missing
    agent when a pod is placed on the node.
    """

    async def run() -> None:
        it = Harness(api)
        it.node("n")
        it.pod("b", "other", "m", "10.0.0.2")
        it.beating = {"m"}
        await it.until(60.1)
        it.wakes()
        pod = it.pod("a", "job", "n", "", "Pending")
        await it.until(65.0)
        assert it.wakes() == [] and it.monitor.nodes((pod,))["n"].silent_seconds == 0.0
        await it.until(65.6)
        assert [(job, delay) for _, job, delay in it.wakes()] == [("job", 0.0)]
        assert it.monitor.nodes((pod,))["n"].silent_seconds == pytest.approx(5.4, abs=0.2)
        await it.stop()

    virtual(run())


def test_a_node_whose_object_is_deleted_does_not_exist(virtual: Virtual, api: FakeApi) -> None:
    async def run() -> None:
        it = Harness(api)
        it.node("n")
        pod = it.pod("a", "job", "n", "10.0.0.1")
        it.beating = {"n"}
        await it.until(12.0)
        it.beating.clear()
        known = it.cache.nodes.get("", "n")
        assert known is not None
        it.cache.nodes.remove(known)
        assert not it.monitor.nodes((pod,))["n"].exists
        assert not it.monitor.connected("n")
        await it.stop()

    virtual(run())


def test_after_a_farewell_only_nodes_with_workers_count_as_silent(virtual: Virtual, api: FakeApi) -> None:
    async def run() -> None:
        it = Harness(api)
        for name in ("n", "m", "o"):
            it.node(name)
        pod = it.pod("a", "job", "n", "10.0.0.1")
        it.beating = {"n", "m", "o"}
        await it.until(12.5)
        it.beating = {"o"}
        it.monitor.record_farewell("n")
        it.monitor.record_farewell("m")
        await it.until(300.0)
        silent = it.metrics.nodes_silent._value
        assert silent.get() == 2
        await it.until(313.0)
        assert silent.get() == 1, "node m has no pods, so its agent is not missed"
        assert it.monitor.nodes((pod,))["n"].silent_seconds > 300.0
        it.beating = {"o", "m"}
        await it.until(315.0)
        assert it.monitor.connected("m"), "the agent came back in spite of its farewell"
        await it.stop()

    virtual(run())


def test_a_blocked_event_loop_makes_no_agent_silent(virtual: Virtual, api: FakeApi) -> None:
    async def run() -> None:
        it = Harness(api)
        it.node("n")
        pod = it.pod("a", "job", "n", "10.0.0.1")
        it.beating = {"n"}
        await it.until(20.05)
        it.wakes()
        value = it.metrics.registry.get_sample_value
        assert value("convoy_event_loop_late_seconds_sum") == pytest.approx(0.0, abs=0.01)
        it.loop._virtual += 30  # type: ignore[attr-defined]
        it.beating.clear()
        await asyncio.sleep(1.0)
        assert value("convoy_event_loop_late_seconds_sum") == pytest.approx(30.0, abs=0.2)
        assert it.wakes() == [] and it.monitor.nodes((pod,))["n"].silent_seconds == 0.0
        await asyncio.sleep(5.0)
        assert it.monitor.nodes((pod,))["n"].silent_seconds > 5.0, "the agent is silent a moment later"
        await it.stop()

    virtual(run())
