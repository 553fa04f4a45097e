"""Tests of health sweeps of nodes: the HealthSweep, the orders to agents, and the results for the nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from convoy_agents.guard.sweep import catalogue
from convoy_agents.guard.sweep.probe import Tier
from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.commands import CancelSweep
from convoy_controllers.healthsweep import controller
from convoy_controllers.healthsweep.observed import BANDWIDTH, INVENTORY, METRICS, NodeReport, Order
from convoy_controllers.healthsweep.plan import advance
from convoy_controllers.keys import Key
from convoy_controllers.resources import (
    GUARD_POLICIES,
    HARDWARE_CLASSES,
    HEALTH_SWEEPS,
    NODE_HEALTHS,
    NODES,
)
from convoy_controllers.testing.hub import FakeHub
from convoy_operator import errors
from convoy_operator.hub.sweeps import AGAIN_SECONDS, Sweeps
from convoy_operator.sweeps import OrderGarbageCollector

from .conftest import FakeApi
from .reconciling import Operator

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
CLASS = "c1a55"


class SweepHub(FakeHub):
    """A fake hub with the reports on sweep orders."""

    def __init__(self, sweeps: Sweeps) -> None:
        super().__init__()
        self._sweeps = sweeps

    @property
    def sweeps(self) -> Callable[[str, str], NodeReport | None]:
        return self._sweeps.report


class Cluster(Operator):
    """An operator, nodes that are newer than their policy, and agents that measure."""

    def __init__(self, api: FakeApi, count: int = 1, **policy: Any) -> None:
        self.clock = 0.0
        self.rng = np.random.default_rng(1)
        self.slow: dict[str, float] = {}
        self.reported: list[tuple[str, wire.HubMessage]] = []
        self.busy: set[str] = set()
        self.restart(api)
        self.now = START
        created = {"creationTimestamp": "2025-11-01T00:00:00Z"}
        spec = {"mode": "Act", "onJoin": "Gate", "sweeps": {"atOncePercent": 100, "timePercent": 0}, **policy}
        api.put(GUARD_POLICIES, {"metadata": {"name": "p", **created}, "spec": spec})
        for number in range(count):
            self.join(f"n{number}")

    def restart(self, api: FakeApi) -> None:
        """Replace the operator by a new process that has no reports."""
        self.sweeps = Sweeps(self.deliver, lambda node: f"{node}:1", clock=lambda: self.clock)
        now = getattr(self, "now", START)
        super().__init__(api, SweepHub(self.sweeps), send=self.command)
        self.now = now
        self.silent = self.hub.silent
        self.order_collector = OrderGarbageCollector(self.reader, self.sweeps)

    def command(self, command: Any) -> None:
        match command:
            case Order():
                self.sweeps.order(command)
            case CancelSweep():
                self.sweeps.cancel(command.node, command.name)

    def join(self, name: str) -> None:
        body = {
            "metadata": {
                "name": name,
                "labels": {"convoy.dev/agent-ready": "true"},
                "creationTimestamp": "2025-12-01T00:00:00Z",
            },
            "spec": {},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"machineID": f"hw-{name}", "bootID": "b"},
            },
        }
        self.api.put(NODES, body)

    def deliver(self, node: str, message: wire.HubMessage) -> bool:
        if node in self.silent:
            return False
        self.reported.append((node, message))
        if message.WhichOneof("body") == "sweep_order":
            self.ordered(node, message.sweep_order)
        return True

    def ordered(self, node: str, order: wire.SweepOrder) -> None:
        report = wire.SweepReport(name=order.name, node=node)
        if node in self.busy:
            report.state = wire.SweepReport.RUNNING
        else:
            report.state = wire.SweepReport.DONE
            report.inventory_digest = CLASS
            report.inventory["cpu.model"] = "six"
            report.metrics.add(metric="inventory", digests=[CLASS])
        if node not in self.busy and "L1" in order.tiers:
            samples = 100 * self.slow.get(node, 1.0) * np.exp(self.rng.normal(0, 0.005, 30))
            report.metrics.add(
                metric="cpu-gemm", unit="GFLOP/s", higher_is_better=True, samples=samples.tolist()
            )
        self.sweeps.record_report(node, report)

    def orders(self, node: str = "n0") -> list[wire.SweepOrder]:
        return [
            message.sweep_order for to, message in self.reported if to == node and message.sweep_order.name
        ]

    # Reconciling

    def sync(self) -> None:
        there = {raw["metadata"]["uid"] for raw in self.api.objects.values()}
        for resource in (NODES, GUARD_POLICIES, NODE_HEALTHS, HEALTH_SWEEPS, HARDWARE_CLASSES):
            for (plural, _, _), raw in list(self.api.objects.items()):
                if plural == resource.plural:
                    self.cache.upsert(resource, raw)
            for one in list(self.cache.store(resource)):
                if one.uid not in there:
                    self.cache.drop(resource, one.uid)

    def reconcile(self, times: int = 1, later: timedelta = timedelta(seconds=15)) -> None:
        for _ in range(times):
            self.now += later
            self.clock += later.total_seconds()
            self.time += later.total_seconds()
            self.sync()
            asyncio.run(self.reconcile_all())
            self.order_collector.collect()
            self.sync()

    def health(self, name: str = "n0") -> dict[str, Any]:
        return self.api.objects[NODE_HEALTHS.plural, "", f"hw-{name}"]["status"]

    def sweep(self, name: str) -> dict[str, Any]:
        return self.api.objects[HEALTH_SWEEPS.plural, "", name]

    def made(self, node: str = "n0") -> list[str]:
        """Return the sweeps that the NodeHealth controller has created for a node, oldest first."""
        names = (name for kind, _, name in self.api.objects if kind == HEALTH_SWEEPS.plural)
        return sorted(name for name in names if name.startswith(f"hw-{node}-"))

    def taints(self, name: str = "n0") -> dict[str, str]:
        found = self.api.objects[NODES.plural, "", name]["spec"].get("taints", [])
        return {one["key"]: one["effect"] for one in found}

    def kinds(self, node: str = "n0") -> list[str]:
        return [str(message.WhichOneof("body")) for to, message in self.reported if to == node]


def test_joining_nodes_are_tainted_until_they_pass_a_sweep(api: FakeApi) -> None:
    it = Cluster(api, 10)
    it.slow["n3"] = 0.8
    it.reconcile()
    assert it.taints() == {"convoy.dev/unqualified": "NoSchedule"}
    it.reconcile(40)
    states = {f"n{number}": it.health(f"n{number}")["state"] for number in range(10)}
    assert {name for name, state in states.items() if state == "Qualified"} >= {"n0", "n1", "n9"}
    assert it.taints("n0") == {}
    assert states["n3"] == "Quarantined" and it.taints("n3") == {"convoy.dev/quarantined": "NoSchedule"}


def test_a_single_node_of_an_unknown_class_is_suspect_after_two_sweeps(api: FakeApi) -> None:
    it = Cluster(api)
    it.reconcile(2)
    assert it.health()["state"] == "Sweeping"
    assert it.sweep(it.made()[0])["spec"] == {
        "nodes": ["n0"],
        "deadline": "45m",
        "ttlSecondsAfterFinished": 86_400,
    }
    it.reconcile(20)
    assert it.health()["state"] == "Suspect" and it.health()["sweeps"] == 2
    status = it.sweep(it.made()[0])["status"]
    assert (status["phase"], status["progress"], status["nodes"][0]["verdict"]) == (
        "Complete",
        "1/1",
        "Inconclusive",
    )
    assert "TooFewReferences" in status["nodes"][0]["message"]
    known = api.objects[HARDWARE_CLASSES.plural, "", CLASS]["status"]
    assert (known["nodes"], known["facts"]) == (1, {"cpu.model": "six"})
    assert it.kinds().count("sweep_received") == 2, "the agent may drop both reports"


def test_an_order_is_resent_until_the_agent_reports(api: FakeApi) -> None:
    it = Cluster(api)
    it.silent.add("n0")
    it.reconcile(3)
    assert it.taints() == {"convoy.dev/unqualified": "NoSchedule"} and not it.reported
    it.silent.clear()
    lost: list[str] = []
    it.ordered = lambda node, order: lost.append(order.name)  # type: ignore[method-assign, assignment]
    it.reconcile(4, timedelta(seconds=1))
    assert len(lost) == 1
    it.reconcile(3, timedelta(seconds=1))
    assert len(lost) == 1, "the order is not resent at every reconcile"
    it.reconcile(1, timedelta(seconds=AGAIN_SECONDS))
    assert len(set(lost)) == 1 and len(lost) == 2


def test_a_new_operator_sends_the_same_order_again(api: FakeApi) -> None:
    it = Cluster(api)
    it.busy.add("n0")
    it.reconcile(3)
    before = {order.name for order in it.orders()}
    it.restart(api)
    it.busy.clear()
    it.reconcile(2)
    assert {order.name for order in it.orders()} == before, "the same order"
    assert it.sweep(it.made()[0])["status"]["phase"] == "Complete"


@pytest.mark.parametrize("verb", ["create", "patch_status"])
def test_a_failed_write_is_retried(api: FakeApi, verb: str) -> None:
    it = Cluster(api)
    it.reconcile()
    api.fail = lambda called, plural, name: errors.Unavailable(503, "away") if called == verb else None
    it.reconcile(5)
    api.fail = lambda called, plural, name: None
    it.reconcile(20)
    assert it.health()["state"] == "Suspect" and it.health()["sweeps"] == 2


def test_a_deleted_sweep_is_cancelled_on_its_nodes(api: FakeApi) -> None:
    it = Cluster(api)
    api.objects.pop((GUARD_POLICIES.plural, "", "p"))
    it.busy.add("n0")
    api.put(HEALTH_SWEEPS, {"metadata": {"name": "mine"}, "spec": {"nodes": ["n0"]}})
    it.reconcile(3)
    assert it.kinds() == ["sweep_order"]
    api.objects.pop((HEALTH_SWEEPS.plural, "", "mine"))
    it.reconcile()
    assert it.kinds() == ["sweep_order", "sweep_cancel"]
    it.sweeps.record_report(
        "n0", wire.SweepReport(name=it.orders()[0].name, state=wire.SweepReport.CANCELLED)
    )
    it.reconcile()
    assert it.kinds() == ["sweep_order", "sweep_cancel", "sweep_received"]


def test_sweeps_created_by_users_count(api: FakeApi) -> None:
    it = Cluster(api, 10, onJoin="Accept")
    it.reconcile(2)
    assert it.health()["state"] == "Unverified"
    api.put(HEALTH_SWEEPS, {"metadata": {"name": "all"}, "spec": {"selector": {}}})
    it.slow["n4"] = 0.8
    it.reconcile(8)
    assert it.sweep("all")["status"]["message"] == "9 pass, 1 fail"
    assert it.health()["state"] == "Qualified" and it.health("n4")["state"] == "Suspect"
    api.put(HEALTH_SWEEPS, {"metadata": {"name": "lists"}, "spec": {"selector": {}, "tiers": ["L0"]}})
    it.reconcile(8)
    assert it.sweep("lists")["status"]["message"] == "10 pass"
    assert it.health("n4")["state"] == "Suspect", "an inventory alone is no pass"


def test_idle_nodes_are_swept_routinely_until_there_is_a_reference(api: FakeApi) -> None:
    it = Cluster(api, 10, onJoin="Accept", sweeps={"atOncePercent": 100, "timePercent": 50})
    it.slow["n4"] = 0.8
    it.reconcile(20)
    states = [it.health(f"n{number}")["state"] for number in range(10)]
    assert states == ["Unverified"] * 9 + ["Qualified"], "the first nine are the reference"
    assert all("inconclusive" not in it.health(f"n{number}")["internal"] for number in range(10))
    it.reconcile(1, timedelta(days=8))
    it.reconcile(20)
    states = [it.health(f"n{number}")["state"] for number in range(10)]
    assert states.pop(4) == "Suspect" and set(states) == {"Qualified"}


def test_a_class_without_nodes_is_deleted(api: FakeApi) -> None:
    it = Cluster(api, 2)
    it.reconcile(20)
    classes = [name for kind, _, name in api.objects if kind == HARDWARE_CLASSES.plural]
    assert classes == [CLASS]
    api.objects.pop((GUARD_POLICIES.plural, "", "p"))
    it.reconcile(2, timedelta(days=182))
    assert (HARDWARE_CLASSES.plural, "", CLASS) in api.objects
    it.reconcile(1, timedelta(days=2))
    assert (HARDWARE_CLASSES.plural, "", CLASS) not in api.objects


def test_a_finished_sweep_is_deleted_after_its_ttl(api: FakeApi) -> None:
    it = Cluster(api)
    api.objects.pop((GUARD_POLICIES.plural, "", "p"))
    spec = {"nodes": ["n0"], "ttlSecondsAfterFinished": 60}
    api.put(HEALTH_SWEEPS, {"metadata": {"name": "mine"}, "spec": spec})
    it.reconcile(4)
    assert it.sweep("mine")["status"]["phase"] == "Complete"
    it.reconcile(9)
    assert (HEALTH_SWEEPS.plural, "", "mine") not in api.objects


def test_stored_sweep_reports_of_a_node_are_bounded(api: FakeApi) -> None:
    sweeps = Sweeps(lambda node, message: True, lambda node: "")
    for number in range(1000):
        sweeps.record_report("n", wire.SweepReport(name=f"s{number}"))
    assert sum(1 for _ in sweeps.all()) < 100
    many = wire.SweepReport(name="s0", state=wire.SweepReport.DONE, inventory_digest="../../x")
    many.metrics.add(metric="made-up")
    many.metrics.add(metric="gemm", accelerator=16)
    for _ in range(100):
        many.metrics.add(metric="fingerprint", digests=["d" * 5000] * 100)
    for _ in range(1000):
        many.metrics.add(metric="gemm", samples=[1.0] * 2000, message="x" * 9999)
    sweeps.record_report("n", many)
    report = sweeps.report("n", "s0")
    assert report is not None and report.digest == ""
    assert len(report.metrics) <= 256 and {one.metric for one in report.metrics} == {"gemm", "fingerprint"}
    assert all(one.accelerator is None for one in report.metrics)
    assert all(len(one.samples) <= 512 and len(one.message) <= 512 for one in report.metrics)
    assert sum(len(one.samples) for one in report.metrics) <= 20_000
    digests = [digest for one in report.metrics for digest in one.digests]
    assert 0 < len(digests) <= 1024 and max(map(len, digests)) <= 128
    sweeps.record_report("m", wire.SweepReport(name="s" * 9999))
    assert not [node for node, _, _ in sweeps.all() if node == "m"]
    sweeps.drop_node("n")
    assert not list(sweeps.all())


def test_metrics_of_agents_match_the_judged_metrics() -> None:
    alone = {probe.name for probe in catalogue.ALL.values() if probe.tier is Tier.L1}
    assert alone == set(METRICS)
    for name, (unit, higher) in METRICS.items():
        assert (catalogue.ALL[name].unit, catalogue.ALL[name].higher_is_better) == (unit, higher)
    assert {BANDWIDTH, INVENTORY} <= set(catalogue.ALL)


def test_a_restarted_agent_receives_the_order_again(api: FakeApi) -> None:
    it = Cluster(api)
    it.busy.add("n0")
    it.reconcile(3)
    assert len(it.orders()) == 1
    it.reconcile(10)
    assert len(it.orders()) == 1, "the agent already runs it"
    it.busy.clear()
    it.sweeps.join("n0")
    it.reconcile()
    assert len(it.orders()) == 2 and it.orders()[0].name == it.orders()[1].name
    it.reconcile()
    assert it.sweep(it.made()[0])["status"]["phase"] == "Complete"


def test_a_sweep_that_fails_to_reconcile_does_not_delay_others(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Cluster(api)
    api.objects.pop((GUARD_POLICIES.plural, "", "p"))
    for name in ("a-bad", "b-good"):
        api.put(HEALTH_SWEEPS, {"metadata": {"name": name}, "spec": {"nodes": ["n0"], "tiers": ["L0"]}})

    def fail(sweep: Any, *others: Any) -> Any:
        if sweep.metadata.name == "a-bad":
            raise ValueError("it is odd")
        return advance(sweep, *others)

    monkeypatch.setattr(controller, "advance", fail)
    it.reconcile(5)
    assert "status" not in it.sweep("a-bad") and it.sweep("b-good")["status"]["message"] == "1 pass"


@pytest.mark.parametrize("known", [True, False], ids=["a known class", "a class that it created"])
def test_concurrent_changes_of_a_class_by_another_sweep_are_kept(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    it = Cluster(api, 2)
    api.objects.pop((GUARD_POLICIES.plural, "", "p"))
    row = {"name": "other", "at": "2026-01-01T12:00:00Z", "levels": [99.0] * 9}
    metric = {"name": "cpu-gemm", "unit": "GFLOP/s", "higherIsBetter": True, "recent": [row]}
    if known:
        api.put(HARDWARE_CLASSES, {"metadata": {"name": CLASS}, "spec": {}, "status": {"facts": {"a": "b"}}})
    api.put(HEALTH_SWEEPS, {"metadata": {"name": "mine"}, "spec": {"nodes": ["n0"], "tiers": ["L0", "L1"]}})
    taught: list[str] = []

    def fail(*observed: Any) -> Any:
        step = advance(*observed)
        if step.classes and not taught:
            # Act as another sweep that changes the class after this sweep has made its decision and before it
            # writes.
            taught.append(CLASS)
            body = {"metadata": {"name": CLASS}, "spec": {}, "status": {"nodes": 1, "metrics": [metric]}}
            it.cache.upsert(HARDWARE_CLASSES, api.put(HARDWARE_CLASSES, body))
        return step

    monkeypatch.setattr(controller, "advance", fail)
    it.reconcile(12)
    assert taught and it.sweep("mine")["status"]["phase"] == "Complete"
    (stored,) = api.objects[HARDWARE_CLASSES.plural, "", CLASS]["status"]["metrics"]
    assert [one["name"] for one in stored["recent"]] == ["hw-n0", "other"]


@pytest.mark.parametrize("watch_first", [False, True], ids=["the response first", "the watch first"])
def test_a_stored_verdict_is_counted_once(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, watch_first: bool
) -> None:
    it = Cluster(api, 2)
    api.objects.pop((GUARD_POLICIES.plural, "", "p"))
    api.put(HEALTH_SWEEPS, {"metadata": {"name": "a"}, "spec": {"selector": {}, "tiers": ["L0"]}})
    store = api.patch_status

    async def patch_status(*arguments: Any) -> Any:
        raw = await store(*arguments)
        if watch_first:
            it.cache.upsert(arguments[0], raw)
        return raw

    monkeypatch.setattr(api, "patch_status", patch_status)
    it.reconcile(6)
    assert it.sweep("a")["status"]["message"] == "2 pass"
    assert it.metrics.registry.get_sample_value("convoy_guard_sweeps_total", {"verdict": "Pass"}) == 2


def test_a_sweep_observes_only_its_own_nodes(api: FakeApi) -> None:
    it = Cluster(api, 5)
    api.objects.pop((GUARD_POLICIES.plural, "", "p"))
    api.put(HEALTH_SWEEPS, {"metadata": {"name": "two"}, "spec": {"nodes": ["n3", "n1", "gone"]}})
    api.put(HEALTH_SWEEPS, {"metadata": {"name": "all"}, "spec": {"selector": {}}})

    def seen(name: str) -> list[str]:
        observed = controller.observe(it.reader, Key("HealthSweep", "", name))
        return [one.name for one in observed.nodes] if observed is not None else []

    it.sync()
    assert (seen("two"), len(seen("all"))) == (["n1", "n3"], 5)
    it.reconcile()
    it.join("n5")
    it.sync()
    assert (seen("two"), len(seen("all"))) == (["n1", "n3"], 5), "a node that joined later is not swept"


def test_a_recreated_nodehealth_gets_a_new_sweep(api: FakeApi) -> None:
    it = Cluster(api)
    it.reconcile(20)
    assert it.health()["state"] == "Suspect"
    first = it.made()
    api.objects.pop((NODE_HEALTHS.plural, "", "hw-n0"))
    it.reconcile(3)
    assert it.health()["state"] == "Sweeping"
    assert it.made()[-1] not in first and it.health()["sweep"]["name"] == it.made()[-1]


def test_two_nodes_with_the_same_hardware_id_are_not_swept(api: FakeApi) -> None:
    it = Cluster(api, 2)
    api.objects.pop((GUARD_POLICIES.plural, "", "p"))
    twin = api.objects[NODES.plural, "", "n1"]
    twin["status"]["nodeInfo"]["machineID"] = "hw-n0"
    api.put(NODES, twin)
    api.put(HEALTH_SWEEPS, {"metadata": {"name": "all"}, "spec": {"selector": {}, "tiers": ["L0"]}})
    it.reconcile(4)
    messages = {one["node"]: one["message"] for one in it.sweep("all")["status"]["nodes"]}
    assert set(messages.values()) == {"its agent has not reported its hardware"}


def test_a_refusal_of_an_unknown_order_is_dropped(api: FakeApi) -> None:
    it = Cluster(api)
    it.sweeps.record_report("n0", wire.SweepReport(name="strange", state=wire.SweepReport.REFUSED))
    it.reconcile()
    assert not [order for _, order, _ in it.sweeps.all() if order == "strange"]
