"""Tests of the probes of silent nodes: the targets, the frequency, and the results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from convoy_controllers.liveness.judge import Liveness
from convoy_controllers.resources import LEASES
from convoy_operator import errors, views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.hub.context import HubContext
from convoy_operator.hub.node_prober import ABSENT, NodeProber
from convoy_operator.metrics import Metrics
from convoy_operator.queue import WorkQueue
from convoy_operator.settings import Settings

from .conftest import FakeApi

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
Virtual = Callable[[Coroutine[Any, Any, Any]], Any]


def stamp(seconds: float) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Harness:
    """A prober in virtual time. The test sets the targets that reply and the delays of their replies."""

    def __init__(self, api: FakeApi) -> None:
        self.loop = asyncio.get_running_loop()
        self.cache = ClusterCache()
        self.liveness = Liveness(5, 10, 15)
        self.dead: set[str] = set()
        self.probes: list[tuple[float, str, int]] = []
        self.under_way = self.most = 0
        self.changed: list[tuple[float, str]] = []
        self.agents: dict[str, str] = {}
        self.clocks: dict[str, float] = {}
        self.start = self.loop.time()
        context = HubContext(
            cache=self.cache,
            queue=WorkQueue(),
            gateway=api,
            metrics=Metrics(),
            settings=Settings(),
            clock=self.loop.time,
            wall=lambda: EPOCH.timestamp() + self.time(),
        )
        self.prober = NodeProber(
            context,
            self.liveness,
            agent_address=lambda node: self.agents.get(node, ""),
            node_clock=self.clocks.get,
            on_change=lambda node: self.changed.append((self.time(), node)),
            connect=self.connect,
        )

    def time(self) -> float:
        return round(self.loop.time() - self.start, 3)

    async def connect(self, address: str, port: int) -> bool:
        self.probes.append((self.time(), address, port))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if address in self.dead:
            await asyncio.sleep(0.5)
        self.under_way -= 1
        if address == "broken":
            raise OSError(24, "Too many open files")
        return address not in self.dead

    def pod(self, name: str, node: str, ip: str = "", phase: str = "Running", job: str = "j") -> None:
        self.cache.pods.upsert(
            views.pod(
                {
                    "metadata": {
                        "name": name,
                        "uid": name,
                        "resourceVersion": "1",
                        "labels": {"convoy.dev/job": job},
                    },
                    "spec": {"nodeName": node},
                    "status": {"phase": phase, "podIP": ip},
                }
            )
        )

    def node(self, name: str, labelled: bool = True) -> None:
        labels = {"convoy.dev/agent-ready": "true" if labelled else ""}
        raw = {"metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}}
        self.cache.nodes.upsert(views.node(raw))

    def record_signs(self, *nodes: str) -> None:
        for node in nodes:
            self.liveness.record_sign(node, self.loop.time())

    async def until(self, time: float) -> None:
        """Poll as often as the hub does, until the given time."""
        while self.time() < time:
            self.prober.poll()
            await asyncio.sleep(min(0.2, time - self.time()))

    def lease(self, api: FakeApi, node: str, renewed: float) -> None:
        api.put(
            LEASES, {"metadata": {"name": node}, "spec": {"renewTime": stamp(renewed)}}, "kube-node-lease"
        )


def test_pods_are_probed_after_three_seconds_and_once_per_second(virtual: Virtual, api: FakeApi) -> None:
    async def run() -> None:
        it = Harness(api)
        it.record_signs("n")
        it.pod("a", "n", "10.0.0.1")
        it.pod("other", "elsewhere", "10.0.0.9")
        await it.until(2.9)
        assert it.probes == [] and it.prober.probe("n") is None
        await it.until(6.9)
        times = [time for time, address, _ in it.probes if address == "10.0.0.1"]
        assert 3.0 <= times[0] <= 3.2
        assert [round(later - sooner, 3) for sooner, later in pairwise(times)] == [1] * 3
        assert {target[1:] for target in it.probes} == {("10.0.0.1", 9), ("10.0.0.9", 9)}, (
            "the pod and a control"
        )
        case = it.prober.probe("n")
        assert case is not None and case.reachable and case.pods_probed
        assert case.since == pytest.approx(EPOCH.timestamp())
        await it.prober.stop()

    virtual(run())


def test_one_reachable_pod_of_three_probed_makes_a_node_reachable(virtual: Virtual, api: FakeApi) -> None:
    async def run() -> None:
        it = Harness(api)
        it.record_signs("n")
        for count in range(1, 6):
            it.pod(f"p{count}", "n", f"10.0.0.{count}")
        it.pod("ended", "n", "10.0.0.0", "Failed")
        it.pod("no address yet", "n")
        it.dead = {"10.0.0.1", "10.0.0.2"}
        await it.until(3.9)
        assert {address for _, address, _ in it.probes} == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}
        assert it.prober.reachable("n") and it.changed == []
        it.dead.add("10.0.0.3")
        await it.until(5.0)
        assert not it.prober.reachable("n")
        it.dead.clear()
        await it.until(6.0)
        assert it.prober.reachable("n")
        assert [node for _, node in it.changed] == ["n", "n"]
        await it.prober.stop()

    virtual(run())


def test_a_sign_of_the_agent_ends_probing(virtual: Virtual, api: FakeApi) -> None:
    async def run() -> None:
        it = Harness(api)
        it.record_signs("n")
        it.pod("a", "n", "10.0.0.1")
        it.dead = {"10.0.0.1"}
        await it.until(4.2)
        assert not it.prober.reachable("n") and it.under_way == 1
        it.record_signs("n")
        it.prober.poll()
        count = len(it.probes)
        await it.until(7.0)
        assert len(it.probes) == count
        assert it.prober.reachable("n") and it.prober.probe("n") is None
        assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    virtual(run())


def test_the_agent_of_a_schedulable_node_without_pods_is_probed(virtual: Virtual, api: FakeApi) -> None:
    async def run() -> None:
        it = Harness(api)
        it.record_signs("spare", "v6", "named", "unlabelled")
        it.agents = {
            "spare": "10.0.1.1:8472",
            "v6": "[fd00::1]:8472",
            "named": "db.example.com:5432",
            "unlabelled": "10.0.1.2:8472",
        }
        for node in it.agents:
            it.node(node, labelled=node != "unlabelled")
        it.dead = {"10.0.1.1"}
        await it.until(4.0)
        assert {target[1:] for target in it.probes} == {("10.0.1.1", 8472), ("fd00::1", 8472)}
        case = it.prober.probe("spare")
        assert case is not None and not case.reachable and not case.pods_probed
        assert it.prober.reachable("named"), "the prober ignores host names in an agent's report"
        assert api.count("get") == 0, "no pods, no Lease"
        await it.prober.stop()

    virtual(run())


def test_a_probe_that_cannot_be_sent_is_no_evidence(virtual: Virtual, api: FakeApi) -> None:
    async def run() -> None:
        it = Harness(api)
        it.record_signs("n")
        it.pod("a", "n", "broken")
        await it.until(6.0)
        assert len(it.probes) == 3 and it.prober.reachable("n")
        await it.prober.stop()

    virtual(run())


def test_many_silent_nodes_are_probed_with_limited_concurrency(virtual: Virtual, api: FakeApi) -> None:
    async def run() -> None:
        it = Harness(api)
        for count in range(300):
            it.record_signs(f"n{count}")
            it.pod(f"p{count}", f"n{count}", f"10.0.{count // 250}.{count % 250}")
            it.dead.add(f"10.0.{count // 250}.{count % 250}")
        await it.until(6.5)
        assert it.most == 64
        assert len({address for _, address, _ in it.probes}) == 300
        assert not any(it.prober.reachable(f"n{count}") for count in range(300))
        assert api.count("get") <= 8 + 20 * 3.5
        await it.prober.stop()

    virtual(run())


def test_the_kubelet_lease_is_read_every_two_seconds(virtual: Virtual, api: FakeApi) -> None:
    async def run() -> None:
        it = Harness(api)
        it.record_signs("n", "gone")
        it.pod("a", "n", "10.0.0.1")
        it.pod("b", "gone", "10.0.0.2")
        it.lease(api, "n", -7.0 - 3600)
        it.clocks["n"] = 3600 - EPOCH.timestamp() + it.start  # the node's clock is an hour behind

        def ages() -> list[float]:
            cases = [it.prober.probe(node) for node in ("n", "gone")]
            return [case.lease_seconds for case in cases if case is not None]

        await it.until(3.9)
        assert ages() == [pytest.approx(10.1, abs=0.2), ABSENT]
        await it.until(5.9)
        assert ages() == [pytest.approx(12.1, abs=0.2), ABSENT]
        assert api.count("get", "leases") == 4
        it.lease(api, "n", 6.5 - 3600)
        await it.until(7.9)
        assert ages()[0] < 1.0
        api.fail = lambda verb, plural, name: errors.Unavailable(503, "down")
        await it.until(12.0)
        assert ages()[0] < 1.0 and ages()[1] == ABSENT, "an unknown age does not grow"
        await it.prober.stop()

    virtual(run())


def test_without_the_node_clock_a_lease_renewal_counts_from_its_first_read(
    virtual: Virtual, api: FakeApi
) -> None:
    async def run() -> None:
        it = Harness(api)
        it.record_signs("n", "future", "garbled")
        for name in ("n", "future", "garbled"):
            it.pod(name, name, "10.0.0.1")
            it.lease(api, name, -100.0)
        it.clocks = {"future": it.start - EPOCH.timestamp() + 500, "garbled": 0.0}
        garbled = {"metadata": {"name": "garbled"}, "spec": {"renewTime": "soon"}}
        api.put(LEASES, garbled, "kube-node-lease")
        await it.until(7.5)
        cases = [it.prober.probe(node) for node in ("n", "future", "garbled")]
        assert [case.lease_seconds for case in cases if case] == [pytest.approx(4.0, abs=0.3)] * 3
        await it.prober.stop()

    virtual(run())


@pytest.mark.parametrize(
    ("others", "credible"),
    [
        ([], False),
        ([("sibling", "m", "10.0.0.2", "j")], True),
        ([("sibling", "m", "10.0.0.3", "j")], False),
        ([("stranger", "m", "10.0.0.2", "k")], True),
        ([("sibling", "m", "10.0.0.3", "j"), ("stranger", "m", "10.0.0.2", "k")], False),
        ([("sibling", "quiet", "10.0.0.2", "j")], False),
    ],
    ids=["alone", "a sibling answers", "no pod may be reached", "a stranger answers", "its job is closed",
         "the sibling's agent is quiet, too"],
)  # fmt: skip
def test_unreachable_pods_are_credible_only_if_a_control_is_reachable(
    virtual: Virtual, api: FakeApi, others: list[tuple[str, str, str, str]], credible: bool
) -> None:
    async def run() -> None:
        it = Harness(api)
        it.record_signs("n", "quiet")
        it.pod("a", "n", "10.0.0.1")
        for name, node, ip, job in others:
            it.pod(name, node, ip, job=job)
        it.dead = {"10.0.0.1", "10.0.0.3"}
        await it.until(5.5)
        case = it.prober.probe("n")
        assert case is not None and case.pods_probed is credible and not case.reachable
        await it.prober.stop()

    virtual(run())


def test_an_unread_lease_counts_as_renewed(virtual: Virtual, api: FakeApi) -> None:
    async def run() -> None:
        it = Harness(api)
        api.fail = lambda verb, plural, name: errors.Forbidden(403, "no")
        it.record_signs("n")
        it.pod("a", "n", "10.0.0.1")
        await it.until(8.5)
        case = it.prober.probe("n")
        assert case is not None and case.lease_seconds == 0.0
        assert api.count("get", "leases") == 3
        await it.prober.stop()

    virtual(run())


@pytest.mark.parametrize("agent", ["", "10.0.1.1:8472"])
def test_a_pod_placed_on_a_dead_node_does_not_make_the_node_reachable(
    virtual: Virtual, api: FakeApi, agent: str
) -> None:
    async def run() -> None:
        it = Harness(api)
        it.record_signs("n")
        it.agents["n"] = agent
        it.node("n")
        it.pod("a", "n", "10.0.0.1")
        it.pod("other", "elsewhere", "10.0.0.9")
        it.dead = {"10.0.0.1", "10.0.1.1"}
        await it.until(5.0)
        it.node("n", labelled=False)
        it.cache.pods.remove(it.cache.pods.by_uid("a"))  # type: ignore[arg-type]
        await it.until(8.0)
        it.pod("b", "n", "", phase="Pending")
        await it.until(11.0)
        case = it.prober.probe("n")
        assert case is not None and case.pods_probed and not case.reachable
        it.record_signs("n")
        await it.until(11.2)
        assert it.prober.probe("n") is None
        await it.prober.stop()

    virtual(run())
