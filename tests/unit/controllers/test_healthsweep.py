"""Tests of health sweeps from their start to the verdicts, with simulated nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from convoy_controllers.healthsweep import pairing
from convoy_controllers.healthsweep.observed import (
    BANDWIDTH,
    End,
    Measurement,
    NodeReport,
    Order,
    OrderState,
    SweepNode,
)
from convoy_controllers.healthsweep.plan import MANY, Step, advance
from convoy_crds.hardwareclass import MOST_ROWS, HardwareClassStatus
from convoy_crds.healthsweep import HealthSweep, NodeVerdict, SweepPhase
from convoy_crds.nodehealth import Verdict

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
CLASS = "5f1dc0de"


@dataclass
class Machine:
    """A simulated node with its faults."""

    name: str
    gemm: float = 1.0
    """Speed of the cpu-gemm test, relative to the other machines."""
    network: float = 1.0
    digest: str = "aa"
    ends: dict[str, End] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    pods: int = 0
    agent_connected: bool = True
    there: bool = True
    slow_runs: int = 99
    """Number of runs after which the machine is as fast as the others."""
    refuses: int = 0
    never_ends: bool = False
    breaks_off: bool = False
    orders: list[Order] = field(default_factory=list)


class Fleet:
    """Machines, and a loop that reconciles one sweep. Each reconcile sees only what a restarted operator
    would see.
    """

    def __init__(self, *machines: Machine, seed: int = 0) -> None:
        self.machines = {one.name: one for one in machines}
        self.rng = np.random.default_rng(seed)
        self.reported: dict[tuple[str, str], NodeReport] = {}
        self.classes: dict[str, HardwareClassStatus] = {}
        self.now = BEGAN
        self.cancelled: list[Order] = []

    def sweep(self, name: str = "s", **spec: Any) -> HealthSweep:
        body = {"metadata": {"name": name, "uid": f"uid-of-{name}"}, "spec": spec or {"selector": {}}}
        return HealthSweep.model_validate(body)

    def nodes(self) -> list[SweepNode]:
        return [
            SweepNode(
                one.name, f"hw-{one.name}", address="a:1", agent_connected=one.agent_connected, pods=one.pods
            )
            for one in self.machines.values()
            if one.there
        ]

    def reconcile(self, sweep: HealthSweep) -> tuple[HealthSweep, Step]:
        step = advance(
            sweep, self.nodes(), lambda node, order: self.reported.get((node, order)), self.classes, self.now
        )
        self.classes |= step.classes
        for one in step.classes.values():
            assert HardwareClassStatus.model_validate(one.to_dict()) == one
        if step.status is not None:
            sweep = sweep.model_copy(update={"status": step.status})
        self.cancelled += step.cancels
        return sweep, step

    def play(
        self, sweep: HealthSweep, reconciles: int = 200, each: Callable[[HealthSweep], None] = lambda _: None
    ) -> HealthSweep:
        """Reconcile until the sweep has ended, but at most `reconciles` times. Return the sweep."""
        for _ in range(reconciles):
            sweep, step = self.reconcile(sweep)
            if sweep.status.completion_time is not None:
                return sweep
            assert len({one.node for one in step.orders}) == len(step.orders), "one order for a node"
            for one in step.orders:
                self.measure(one)
            each(sweep)
            self.now += timedelta(seconds=15)
        return sweep

    def measure(self, order: Order) -> None:
        machine = self.machines[order.node]
        if not machine.agent_connected:
            return
        machine.orders.append(order)
        if machine.refuses:
            machine.refuses -= 1
            reported = NodeReport(OrderState.REFUSED, "sweep t is running on this node")
        elif machine.never_ends:
            reported = NodeReport(OrderState.RUNNING)
        elif order.partner:
            reported = self.pair(machine, order)
        else:
            reported = self.alone(machine, order)
        self.reported[order.node, order.name] = reported

    def alone(self, machine: Machine, order: Order) -> NodeReport:
        found = []
        slow = machine.gemm if len(machine.orders) <= machine.slow_runs else 1.0
        for metric, middle, unit in (("cpu-gemm", 100 * slow, "GFLOP/s"), ("memory-copy", 9.0, "GB/s")):
            found.append(Measurement(metric, unit=unit, samples=self.samples(middle)))
        found.append(Measurement("fingerprint", digests=(machine.digest, machine.digest)))
        found.append(Measurement("nccl", End.NOT_AVAILABLE))
        found = [
            Measurement(one.metric, machine.ends[one.metric]) if one.metric in machine.ends else one
            for one in found
            if "L1" in order.tiers and (not order.probes or one.metric in order.probes)
        ]
        if order.probes or "L0" not in order.tiers:
            return NodeReport(OrderState.DONE, metrics=tuple(found))
        if machine.breaks_off:
            return NodeReport(OrderState.DONE, "OSError: no such file", digest=CLASS)
        found.insert(0, Measurement("inventory", digests=(CLASS,)))
        facts = {"cpu.model": "six", "own.boot.id": machine.name, **machine.facts}
        return NodeReport(OrderState.DONE, metrics=tuple(found), facts=facts, digest=CLASS)

    def pair(self, machine: Machine, order: Order) -> NodeReport:
        if not order.measures:
            return NodeReport(OrderState.DONE)
        slower = min(machine.network, self.machines[order.partner].network)
        return NodeReport(
            OrderState.DONE, metrics=(Measurement("pair-bandwidth", samples=self.samples(1000 * slower)),)
        )

    def samples(self, middle: float) -> tuple[float, ...]:
        return tuple(float(one) for one in middle * np.exp(self.rng.normal(0, 0.005, 40)))


def fleet(count: int, **odd: Machine) -> Fleet:
    names = [f"n{number:02}" for number in range(count)]
    return Fleet(*(odd.get(name) or Machine(name) for name in names))


def verdicts(sweep: HealthSweep) -> dict[str, str]:
    return {one.node: one.verdict.value if one.verdict else "" for one in sweep.status.nodes}


def of(sweep: HealthSweep, node: str) -> NodeVerdict:
    return next(one for one in sweep.status.nodes if one.node == node)


def test_healthy_nodes_pass_and_become_the_reference_of_their_class() -> None:
    it = fleet(12)
    sweep = it.play(it.sweep())
    status = sweep.status
    assert set(verdicts(sweep).values()) == {"Pass"}
    assert (status.phase, status.progress, status.failed) == (SweepPhase.COMPLETE, "12/12", 0)
    assert (status.message, of(sweep, "n00").tier, of(sweep, "n00").evidence) == ("12 pass", "L1", [])
    known = it.classes[CLASS]
    assert (known.nodes, known.referenced, known.facts) == (12, 3, {"cpu.model": "six"})
    assert all(len(machine.orders) == 1 for machine in it.machines.values())


@pytest.mark.parametrize("slow", [0.92, 0.8, 0.3])
def test_slow_node_fails_after_two_runs_and_is_not_a_reference(slow: float) -> None:
    it = fleet(12, n03=Machine("n03", gemm=slow))
    sweep = it.play(it.sweep())
    assert {name for name, outcome in verdicts(sweep).items() if outcome != "Pass"} == {"n03"}
    found = of(sweep, "n03")
    assert found.verdict is Verdict.FAIL and found.message.startswith("BelowReference: cpu-gemm")
    assert [(one.name, one.verdict, one.unit) for one in found.evidence] == [("cpu-gemm", "Fail", "GFLOP/s")]
    assert [one.probes for one in it.machines["n03"].orders] == [(), ("cpu-gemm",)]
    known = {one.name: one for one in it.classes[CLASS].metrics}
    assert "hw-n03" not in {row.name for row in known["cpu-gemm"].reference}
    assert "hw-n03" in {row.name for row in known["cpu-gemm"].recent}


def test_a_single_slow_run_is_run_again_and_passes() -> None:
    it = fleet(12, n03=Machine("n03", gemm=0.8, slow_runs=1))
    sweep = it.play(it.sweep())
    assert set(verdicts(sweep).values()) == {"Pass"}
    assert len(it.machines["n03"].orders) == 3, "two of three must agree"


def test_three_nodes_are_too_few_to_condemn_one() -> None:
    it = fleet(3, n00=Machine("n00", gemm=0.3))
    sweep = it.play(it.sweep())
    assert set(verdicts(sweep).values()) == {"Inconclusive"}
    assert "TooFewReferences" in of(sweep, "n00").message
    assert all(len(machine.orders) == 1 for machine in it.machines.values()), "more runs would not help"


def test_reference_is_reused_unchanged_by_a_later_sweep_of_one_node() -> None:
    it = fleet(12)
    it.play(it.sweep())
    before = it.classes[CLASS]
    it.machines["n05"].gemm = 0.85
    sweep = it.play(it.sweep("later", nodes=["n05"]))
    assert verdicts(sweep) == {"n05": "Fail"}
    known = {one.name: one for one in it.classes[CLASS].metrics}
    assert known["cpu-gemm"].reference == {one.name: one for one in before.metrics}["cpu-gemm"].reference
    assert not it.classes[CLASS].drifted, "one slow node is no drift"


def test_slower_class_has_drifted() -> None:
    it = fleet(12)
    it.play(it.sweep())
    for machine in it.machines.values():
        machine.gemm = 0.96
    it.now += timedelta(days=1)
    it.play(it.sweep("later"))
    assert it.classes[CLASS].drifted == ["cpu-gemm"]
    drift = {one.name: one.drift for one in it.classes[CLASS].metrics}["cpu-gemm"]
    assert drift is not None and -0.06 < drift < -0.02


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (Machine("n00", digest="bb"), "SilentCorruption: fingerprint"),
        (Machine("n00", ends={"memory-copy": End.HUNG}), "ProbeHung: memory-copy"),
        (Machine("n00", facts={"own.memory.ue_count": "2"}), "UncorrectedMemoryErrors: memory.ue_count is 2"),
    ],
    ids=["wrong bits", "a driver hangs", "memory errors"],
)
def test_broken_node_fails_in_the_first_run(odd: Machine, message: str) -> None:
    it = fleet(12, n00=odd)
    sweep = it.play(it.sweep())
    assert {name for name, outcome in verdicts(sweep).items() if outcome == "Fail"} == {"n00"}
    assert of(sweep, "n00").message.startswith(message)


def test_test_without_a_figure_runs_three_times_then_is_inconclusive() -> None:
    it = fleet(12, n00=Machine("n00", ends={"memory-copy": End.CRASHED}))
    sweep = it.play(it.sweep())
    assert verdicts(sweep)["n00"] == "Inconclusive"
    assert "Crashed in 3 runs" in of(sweep, "n00").message
    assert len(it.machines["n00"].orders) == 3


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (
            Machine("n00", ends={"cpu-gemm": End.NOT_AVAILABLE}),
            "cpu-gemm: missing, but other nodes of its class have it",
        ),
        (Machine("n00", breaks_off=True), "its agent stopped the tests early: OSError"),
        (Machine("n00", facts={"own.memory.ue_count": "\u00b2"}), ""),
    ],
    ids=["a test that it has not", "an agent that breaks off", "a count that is none"],
)
def test_node_passes_only_with_all_metrics_of_its_class(odd: Machine, why: str) -> None:
    it = fleet(12)
    it.play(it.sweep())
    it.machines["n00"] = odd
    sweep = it.play(it.sweep("later", nodes=["n00"]))
    assert verdicts(sweep)["n00"] == ("Inconclusive" if why else "Pass")
    assert why in of(sweep, "n00").message


def test_silent_agent_delays_other_nodes_only_for_a_limited_time() -> None:
    it = fleet(12, n00=Machine("n00", never_ends=True))
    sweep = it.play(it.sweep(selector={}, deadline="2h"), reconciles=20)
    assert of(sweep, "n01").message == "waits for other nodes of its class to be measured"
    sweep = it.play(sweep, reconciles=50)
    assert verdicts(sweep)["n01"] == "Pass" and verdicts(sweep)["n00"] == ""


def test_status_of_a_large_sweep_stays_small() -> None:
    it = fleet(MANY + 1, n03=Machine("n03", gemm=0.5))
    sweep = it.play(it.sweep(tiers=["L1"], selector={}))
    assert verdicts(sweep)["n03"] == "Fail" and len(of(sweep, "n03").evidence) == 1
    assert set(verdicts(sweep).values()) == {"Pass", "Fail"}


def test_tests_wait_for_an_idle_node_and_inventories_do_not() -> None:
    it = fleet(12, n00=Machine("n00", pods=2))
    sweep = it.play(it.sweep(), reconciles=5)
    assert (
        verdicts(sweep)["n00"] == "" and of(sweep, "n00").message == "waits until 2 pods of jobs have left it"
    )
    assert verdicts(sweep)["n01"] == "Pass", "nobody waits for it"
    it.machines["n00"].pods = 0
    assert verdicts(it.play(sweep))["n00"] == "Pass"
    other = fleet(2, n00=Machine("n00", pods=2))
    assert set(verdicts(other.play(other.sweep(selector={}, tiers=["L0"]))).values()) == {"Pass"}


def test_pods_that_start_during_a_test_make_the_test_inconclusive() -> None:
    it = fleet(12, n00=Machine("n00", never_ends=True))
    sweep = it.play(it.sweep(), reconciles=3)
    it.machines["n00"].pods = 1
    sweep = it.play(sweep)
    assert (
        verdicts(sweep)["n00"] == "Inconclusive"
        and "started on it during the tests" in of(sweep, "n00").message
    )
    assert [one.node for one in it.cancelled] == ["n00"]


def test_absent_nodes_are_reported_and_inconclusive_at_the_deadline() -> None:
    it = fleet(10, n00=Machine("n00", agent_connected=False), n01=Machine("n01", refuses=2))
    sweep = it.play(it.sweep(nodes=["n00", "n01", "n99"], deadline="10m"), reconciles=6)
    assert of(sweep, "n00").message == "its agent is not connected"
    assert of(sweep, "n99").message == "there is no node of this name"
    sweep = it.play(sweep)
    assert of(sweep, "n00").message == "the sweep's deadline passed: its agent is not connected"
    assert len(it.machines["n01"].orders) == 3
    assert sweep.status.phase is SweepPhase.COMPLETE


def test_removed_or_rebuilt_node_is_inconclusive() -> None:
    it = fleet(10, n00=Machine("n00", never_ends=True))
    sweep = it.play(it.sweep(), reconciles=3)
    it.machines["n00"].there = False
    assert of(it.play(sweep), "n00").message == "the node no longer exists"


def test_empty_sweep_fails_and_a_finished_sweep_is_deleted_after_its_ttl() -> None:
    it = fleet(2)
    sweep = it.play(it.sweep(selector={"matchLabels": {"a": "b"}}, ttlSecondsAfterFinished=60))
    assert (sweep.status.phase, sweep.status.message) == (
        SweepPhase.FAILED,
        "no node is selected: check spec.nodes or spec.selector",
    )
    assert not it.reconcile(sweep)[1].delete
    it.now += timedelta(seconds=61)
    assert not it.reconcile(sweep)[1].delete, "who waits for its verdict has to see it"
    it.now += timedelta(seconds=60)
    assert it.reconcile(sweep)[1].delete


@pytest.mark.parametrize("slow", ["n04", "n11"])
def test_pairs_find_a_slow_network_card(slow: str) -> None:
    it = fleet(16, **{slow: Machine(slow, network=0.8)})
    sweep = it.play(it.sweep(selector={}, tiers=["L0", "L1", "L2"]))
    assert {name for name, outcome in verdicts(sweep).items() if outcome != "Pass"} == {slow}
    found = of(sweep, slow)
    assert (found.verdict, found.tier) == (Verdict.FAIL, "L2")
    assert found.message.startswith("SlowWithAllPartners")
    assert [one.name for one in found.evidence] == ["pairs"]
    pairs = sweep.status.pairs
    assert {one.node for one in pairs} | {one.partner for one in pairs} == set(verdicts(sweep))
    assert [(one.node, one.partner) for one in pairs] == sorted({(one.node, one.partner) for one in pairs})
    for one in pairs:
        expected = 800 if slow in (one.node, one.partner) else 1000
        assert one.node < one.partner and one.bandwidth == pytest.approx(expected, rel=0.01)


def test_failed_node_joins_no_pair_and_few_pairs_are_inconclusive() -> None:
    it = fleet(12, n00=Machine("n00", gemm=0.5))
    sweep = it.play(it.sweep(selector={}, tiers=["L1", "L2"]))
    assert (verdicts(sweep)["n00"], of(sweep, "n00").tier) == ("Fail", "L1")
    assert not [one for one in it.machines["n00"].orders if one.partner]
    few = fleet(12)
    few.play(few.sweep())
    sweep = few.play(few.sweep("few", nodes=["n00", "n01"], tiers=["L1", "L2"]))
    assert set(verdicts(sweep).values()) == {"Inconclusive"} and "TooFewNodes" in of(sweep, "n00").message


def test_node_that_leaves_during_pair_tests_does_not_delay_others() -> None:
    it = fleet(12)

    def leave(sweep: HealthSweep) -> None:
        if any(one.partner for one in it.machines["n02"].orders):
            it.machines["n02"].pods = 1

    sweep = it.play(it.sweep(selector={}, tiers=["L1", "L2"]), each=leave)
    outcome = verdicts(sweep)
    assert outcome.pop("n02") == "Inconclusive"
    assert set(outcome.values()) == {"Pass"}


def test_briefly_absent_node_keeps_its_measurements() -> None:
    nodes = [
        SweepNode(f"n{at:02}", hardware=f"h{at:02}", address="a", agent_connected=True) for at in range(12)
    ]
    first = {
        (order.node, order.name) for order in pairing.replay_rounds("s", nodes, (), lambda *_: None).orders
    }
    over = NodeReport(OrderState.DONE, metrics=(Measurement(BANDWIDTH, End.MEASURED, samples=(1.0,)),))

    def report_of(node: str, order: str) -> NodeReport | None:
        return over if (node, order) in first else None

    second = pairing.replay_rounds("s", nodes, (), report_of).orders
    without = pairing.replay_rounds("s", nodes, ("h02",), report_of).orders
    assert len(first) == len(second) == 12
    assert set(without) == {one for one in second if "n02" not in (one.node, one.partner)}


@pytest.mark.parametrize("at", range(1, 8))
def test_restarted_operator_reaches_the_same_verdicts(at: int) -> None:
    """Restart the operator after `at` reconciles, which loses all reports. Agents report again without new
    measurements, and the verdicts are the same.
    """
    it = fleet(12, n03=Machine("n03", gemm=0.8), n05=Machine("n05", network=0.8))
    sweep = it.play(it.sweep(selector={}, tiers=["L1", "L2"]), reconciles=at)
    remembered, it.reported = it.reported, {}
    measure = it.measure

    def again(order: Order) -> None:
        if (known := remembered.get((order.node, order.name))) is not None:
            it.reported[order.node, order.name] = known
        else:
            measure(order)

    it.measure = again  # type: ignore[method-assign]
    sweep = it.play(sweep)
    assert {name: outcome for name, outcome in verdicts(sweep).items() if outcome != "Pass"} == {
        "n03": "Fail",
        "n05": "Fail",
    }


def test_class_keeps_only_as_many_rows_as_fit_into_an_object() -> None:
    it = fleet(MOST_ROWS + 8)
    sweep = it.play(it.sweep())
    assert set(verdicts(sweep).values()) == {"Pass"}
    assert it.reconcile(sweep.model_copy(update={"status": sweep.status}))[1].classes == {}
    for one in it.classes[CLASS].metrics:
        assert len(one.recent) == len(one.reference) == MOST_ROWS


def test_missing_hardware_of_a_stored_node_is_filled_in() -> None:
    it = fleet(10)
    names = it.nodes

    def unnamed() -> list[SweepNode]:
        return [replace(one, hardware="") for one in names()]

    it.nodes = unnamed  # type: ignore[method-assign]
    sweep = it.play(it.sweep(), reconciles=3)
    assert of(sweep, "n00").message == "its agent has not reported its hardware"
    it.nodes = names  # type: ignore[method-assign]
    assert of(it.play(sweep), "n00").hardware == "hw-n00"
