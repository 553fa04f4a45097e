"""Tests of sweep orders and reports, with a fake runner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from convoy_agents.guard.sweep import orders
from convoy_agents.guard.sweep.finding import Finding, Outcome
from convoy_agents.guard.sweep.orders import MAX_REPORTS, SweepOrders
from convoy_agents.guard.sweep.probe import Probe
from convoy_agents.guard.sweep.provenance import Provenance
from convoy_agents.guard.sweep.report import TO_WIRE
from convoy_agents.guard.sweep.runner import PairProbe, Result
from convoy_agents.wire import hub_pb2
from convoy_controllers.guard.sweep import fingerprint, metric, reference, verdict
from convoy_controllers.guard.sweep.measuring import Better

State = hub_pb2.SweepReport


class FakeRunner:
    def __init__(self) -> None:
        self.started = 0
        self.go_on = asyncio.Event()
        self.fails = False
        self.found = Finding(Outcome.MEASURED, samples=(1.0, 2.0))

    def accelerators(self) -> int:
        return 0

    async def run(
        self, probes: Sequence[Probe], seconds: float, paired: PairProbe, report: Callable[[Result], None]
    ) -> None:
        self.started += 1
        for probe in probes:
            await self.go_on.wait()
            if self.fails:
                raise RuntimeError("no")
            report(Result(probe, None, self.found, 0.5))


class NoPairProbes:
    def pair_probe(self, name: str, partner: Any) -> Any:
        return None


class Bench:
    def __init__(self) -> None:
        self.runner = FakeRunner()
        self.woken = 0
        known = Provenance("1", "6", "", "b")
        self.orders = SweepOrders("one", self.runner, NoPairProbes(), lambda: known, self._wake)  # type: ignore[arg-type]

    def _wake(self) -> None:
        self.woken += 1

    def order(self, name: str = "a", **changes: Any) -> None:
        fields = {"name": name, "tiers": ["L1"], "probes": ["jitter", "loopback"], **changes}
        self.orders.handle(hub_pb2.HubMessage(sweep_order=hub_pb2.SweepOrder(**fields)))

    def cancel(self, name: str = "a") -> None:
        self.orders.handle(hub_pb2.HubMessage(sweep_cancel=hub_pb2.SweepCancel(name=name)))

    def received(self, name: str = "a") -> None:
        self.orders.handle(hub_pb2.HubMessage(sweep_received=hub_pb2.SweepReceived(name=name)))

    def states(self, again: bool = False) -> dict[str, int]:
        return {one.name: one.state for one in self.orders.reports(again)}


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_a_report_is_sent_once_per_session(bench: Bench) -> None:
    bench.order()
    assert bench.states() == {"a": State.RUNNING}
    assert bench.states() == {}
    bench.runner.go_on.set()
    await settle()
    assert bench.states() == {"a": State.DONE}
    assert bench.states() == {}
    assert bench.woken >= 2


async def test_a_report_is_a_snapshot(bench: Bench) -> None:
    bench.order()
    (first,) = bench.orders.reports(again=False)
    bench.runner.go_on.set()
    await settle()
    assert (first.state, len(first.metrics)) == (State.RUNNING, 0)


async def test_a_new_session_gets_running_and_unconfirmed_sweeps(bench: Bench) -> None:
    bench.order("a")
    bench.received("a")  # the sweep is still running, so this does not confirm its final report
    assert bench.states(again=True) == {"a": State.RUNNING}
    bench.runner.go_on.set()
    await settle()
    bench.order("b")
    await settle()
    for _ in range(2):
        assert bench.states(again=True) == {"a": State.DONE, "b": State.DONE}
    bench.received("a")
    assert bench.states(again=True) == {"b": State.DONE}
    bench.received("unknown")
    # If the hub repeats an order, the agent sends the report again, even though the report is confirmed.
    bench.order("a")
    assert bench.states() == {"a": State.DONE}
    assert bench.runner.started == 2


async def test_an_order_cancelled_before_its_start_frees_the_slot(bench: Bench) -> None:
    bench.order("a")
    bench.cancel("a")
    await settle()
    assert bench.states() == {"a": State.CANCELLED}
    bench.order("a")
    assert bench.states() == {"a": State.CANCELLED}
    bench.order("b")
    assert bench.states() == {"b": State.RUNNING}


async def test_a_failed_runner_is_reported(bench: Bench) -> None:
    bench.runner.fails = True
    bench.runner.go_on.set()
    bench.order()
    await settle()
    (report,) = bench.orders.reports(again=False)
    assert (report.state, report.message) == (State.DONE, "RuntimeError: no")


async def test_a_refused_order_is_not_stored(bench: Bench) -> None:
    bench.order("a")
    bench.order("b")
    assert bench.states()["b"] == State.REFUSED
    assert bench.states(again=True) == {"a": State.RUNNING}
    bench.cancel("a")
    await settle()
    bench.order("b")
    assert bench.states()["b"] == State.RUNNING


async def test_the_number_of_stored_reports_is_bounded(bench: Bench) -> None:
    bench.runner.go_on.set()
    for number in range(MAX_REPORTS + 1):
        bench.order(str(number))
        await settle()
    stored = bench.states(again=True)
    assert len(bench.orders._reports) == MAX_REPORTS
    assert (
        set(bench.states(again=True)) == {str(number) for number in range(1, MAX_REPORTS + 1)} < set(stored)
    )


async def test_close_cancels_the_running_sweep(bench: Bench) -> None:
    bench.order()
    await bench.orders.close()
    await settle()
    assert bench.states() == {"a": State.CANCELLED}
    await bench.orders.close()


async def test_a_report_has_the_fields_the_judge_needs(bench: Bench) -> None:
    bench.runner.go_on.set()
    bench.runner.found = Finding(Outcome.MEASURED, samples=(10.0, 10.1, 9.9) * 5)
    bench.order("a", probes=["jitter"])
    await settle()
    (report,) = bench.orders.reports(again=False)
    (one,) = report.metrics
    better = Better.HIGHER if one.higher_is_better else Better.LOWER
    fleet = {f"n{number}": [9.9 + number / 100, 10.0, 10.1] for number in range(10)}
    known = reference.freeze(one.metric, "class", better, 1, fleet)
    judged = metric.judge("one", [tuple(one.samples)], known)
    assert (judged.outcome, judged.reason) == (verdict.Outcome.PASS, verdict.Reason.MEETS_REFERENCE)
    bench.runner.found = Finding(Outcome.MEASURED, digests=("x", "y"))
    bench.order("b", probes=["fingerprint"])
    await settle()
    (report,) = bench.orders.reports(again=False)
    judged = fingerprint.judge("one", tuple(report.metrics[0].digests), {})
    assert (judged.outcome, judged.reason) == (verdict.Outcome.FAIL, verdict.Reason.CORRUPT)


async def test_facts_become_the_report_s_inventory(bench: Bench) -> None:
    bench.runner.go_on.set()
    bench.runner.found = Finding(Outcome.MEASURED, digests=("d",), facts={"cpu": "x"})
    bench.order("a", tiers=["L0"], probes=["inventory"])
    await settle()
    (report,) = bench.orders.reports(again=False)
    assert (dict(report.inventory), report.inventory_digest) == ({"cpu": "x"}, "d")
    assert not report.metrics[0].digests


def test_each_outcome_has_a_wire_value() -> None:
    assert set(TO_WIRE) == set(Outcome)
    assert sorted(TO_WIRE.values()) == sorted(hub_pb2.SweepMetric.Outcome.values())
    for outcome, number in TO_WIRE.items():
        name = hub_pb2.SweepMetric.Outcome.Name(number)
        assert name.replace("_", "").lower() == outcome.value.lower()


def test_an_order_without_deadline_has_a_very_long_one() -> None:
    assert orders.NO_DEADLINE > 3600
