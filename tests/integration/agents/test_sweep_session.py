"""Tests of health sweeps that the hub orders. An agent must start each sweep once, and repeat its report
until the hub confirms it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import Authority, FakeHub, Host, eventually

from convoy_agents.channels import Identity, dial
from convoy_agents.guard.sweep import catalogue, pair_probes
from convoy_agents.wire import hub_pb2, hub_pb2_grpc
from convoy_crds import terms

DONE = hub_pb2.SweepReport.DONE
MEASURED = hub_pb2.SweepMetric.MEASURED


@pytest.fixture
def join(make_host: HostMaker, hub: FakeHub) -> HostMaker:
    """Return a function that starts an agent and waits for its first heartbeat."""

    async def start(node: str) -> Host:
        host = await make_host(node)
        await hub.until(lambda of, message: of == node and message.HasField("heartbeat"))
        return host

    return start


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the sampling time of all probes to 0.05 s. Return a function that sets another sampling time in
    seconds.
    """

    def make(seconds: float) -> None:
        for name, probe in catalogue.ALL.items():
            monkeypatch.setitem(catalogue.ALL, name, replace(probe, seconds=seconds))

    make(0.05)
    return make


def report(name: str, *states: int) -> Callable[[str, Any], bool]:
    return lambda _, message: (
        message.HasField("sweep") and message.sweep.name == name and message.sweep.state in states
    )


def probe_children(host: Host) -> set[int]:
    """Return the pids of the probe processes that run now."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent, line = entry.read_text().rpartition(")")[2].split()[1], entry.with_name("cmdline")
            if int(parent) == os.getpid() and b"guard.sweep.child" in line.read_bytes():
                found.add(int(entry.parent.name))
        except OSError:
            continue
    return found


async def test_an_order_is_run_and_reported(join: HostMaker, hub: FakeHub, short: Any) -> None:
    host = await join("one")
    order = hub_pb2.SweepOrder(name="a/1", tiers=["L0", "L1"], probes=["inventory", "jitter", "fingerprint"])
    hub.send("one", sweep_order=order)
    first = (await hub.until(report("a/1", hub_pb2.SweepReport.RUNNING))).sweep
    assert (first.node, len(first.metrics)) == ("one", 0)
    received = (await hub.until(report("a/1", DONE))).sweep
    assert [one.metric for one in received.metrics] == ["inventory", "jitter", "fingerprint"]
    assert {one.outcome for one in received.metrics} == {MEASURED}
    inventory, jitter, fingerprint = received.metrics
    assert received.inventory["kernel"] == os.uname().release
    assert len(received.inventory_digest) == 32
    assert not inventory.digests
    assert (jitter.unit, jitter.higher_is_better, len(jitter.samples) >= 3) == ("us", False, True)
    assert not jitter.HasField("accelerator")
    assert len(fingerprint.digests) >= 2
    known = received.provenance
    assert (known.kernel, bool(known.agent)) == (os.uname().release, True)
    assert (known.boot_id, len(known.boot_id)) == (received.inventory["own.boot.id"], 36)
    assert not probe_children(host)


async def test_a_repeated_order_starts_one_sweep(join: HostMaker, hub: FakeHub, short: Any) -> None:
    await join("one")
    order = hub_pb2.SweepOrder(name="a/1", tiers=["L1"], probes=["jitter"])
    hub.send("one", sweep_order=order)
    hub.send("one", sweep_order=order)
    received = (await hub.until(report("a/1", DONE))).sweep
    mark = len(hub.messages)
    hub.send("one", sweep_order=order)
    # The report must be the same, with the same samples, because the sweep did not run again.
    assert (await hub.until(report("a/1", DONE), mark)).sweep == received
    running = [one.sweep for _, one in hub.messages if report("a/1", hub_pb2.SweepReport.RUNNING)("", one)]
    assert max(len(one.metrics) for one in running) <= 1


async def test_a_report_is_resent_in_each_session_until_confirmed(
    join: HostMaker, hub: FakeHub, short: Any
) -> None:
    await join("one")
    hub.send("one", sweep_order=hub_pb2.SweepOrder(name="a/1", tiers=["L1"], probes=["jitter"]))
    received = (await hub.until(report("a/1", DONE))).sweep
    for _ in range(2):
        mark = len(hub.messages)
        hub.hang_up("one")
        assert (await hub.until(report("a/1", DONE), mark)).sweep == received
    hub.send("one", sweep_received=hub_pb2.SweepReceived(name="a/1"))
    # The agent handles the hub's messages in order. So when the report for another order arrives, the agent
    # has handled the confirmation.
    hub.send("one", sweep_cancel=hub_pb2.SweepCancel(name="unknown"))
    await hub.until(report("unknown", hub_pb2.SweepReport.REFUSED))
    mark = len(hub.messages)
    hub.hang_up("one")
    await hub.until(lambda _, one: one.HasField("heartbeat"), mark)
    hub.send("one", sweep_order=hub_pb2.SweepOrder(name="a/2", tiers=["L1"], probes=["jitter"]))
    await hub.until(report("a/2", DONE), mark)
    assert "a/1" not in {one.sweep.name for _, one in hub.messages[mark:] if one.HasField("sweep")}


async def test_a_sweep_can_be_cancelled_and_a_second_one_must_wait(
    join: HostMaker, hub: FakeHub, short: Any
) -> None:
    host = await join("one")
    short(600)
    hub.send("one", sweep_order=hub_pb2.SweepOrder(name="a/1", tiers=["L1"], probes=["jitter", "loopback"]))
    await eventually(lambda: len(probe_children(host)) == 1)
    order = hub_pb2.SweepOrder(name="b/1", tiers=["L1"], probes=["jitter"])
    hub.send("one", sweep_order=order)
    refused = (await hub.until(report("b/1", hub_pb2.SweepReport.REFUSED))).sweep
    assert "a/1" in refused.message
    hub.send("one", sweep_cancel=hub_pb2.SweepCancel(name="a/1"))
    received = (await hub.until(report("a/1", hub_pb2.SweepReport.CANCELLED))).sweep
    assert not received.metrics
    assert not probe_children(host)
    # The refused sweep must start if the hub orders it again.
    short(0.05)
    hub.send("one", sweep_order=order)
    await hub.until(report("b/1", DONE))


async def test_a_sweep_ends_by_its_deadline(join: HostMaker, hub: FakeHub, short: Any) -> None:
    await join("one")
    short(600)
    order = hub_pb2.SweepOrder(name="a", tiers=["L1"], probes=["jitter", "loopback"], deadline_seconds=1)
    hub.send("one", sweep_order=order)
    received = (await hub.until(report("a", DONE))).sweep
    assert [one.outcome for one in received.metrics] == [hub_pb2.SweepMetric.TIMED_OUT] * 2
    assert "before the probe started" in received.metrics[1].message


async def test_an_agent_that_leaves_ends_its_sweep(join: HostMaker, hub: FakeHub, short: Any) -> None:
    host = await join("one")
    short(600)
    hub.send("one", sweep_order=hub_pb2.SweepOrder(name="a/1", tiers=["L1"], probes=["jitter"]))
    await eventually(lambda: len(probe_children(host)) == 1)
    await host.stop()
    assert not probe_children(host)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "name"),
        ({"probes": ["jitter", "rm"]}, "probes: rm"),
        ({"tiers": ["L9"]}, "tiers: L9"),
        ({"tiers": []}, "selects no probe"),
        ({"tiers": ["L2"], "probes": []}, "pair"),
    ],
)
async def test_an_invalid_order_is_refused(
    join: HostMaker, hub: FakeHub, changes: dict[str, Any], words: str
) -> None:
    await join("one")
    order = hub_pb2.SweepOrder(**{"name": "a", "tiers": ["L1"], "probes": ["jitter"], **changes})
    hub.send("one", sweep_order=order)
    received = (await hub.until(report(order.name, hub_pb2.SweepReport.REFUSED))).sweep
    assert words in received.message


def pair(name: str, role: Any, partner: Host) -> Any:
    place = hub_pb2.NodeAddress(node=partner.node, peer_address=partner.peer_address)
    return hub_pb2.SweepOrder(
        name=name, tiers=["L2"], pair=hub_pb2.SweepPair(role=role, partner=place), deadline_seconds=30
    )


async def test_two_nodes_measure_the_network_between_them(
    join: HostMaker, hub: FakeHub, short: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_probes, "TRANSFER_BYTES", 2 * pair_probes.PIECE_BYTES)
    one, two = await join("one"), await join("two")
    # The measurer receives its order first, so it must wait for the responder.
    hub.send("one", sweep_order=pair("p", hub_pb2.SweepPair.MEASURER, two))
    await hub.until(lambda node, message: node == "one" and message.HasField("sweep"))
    hub.send("two", sweep_order=pair("p", hub_pb2.SweepPair.RESPONDER, one))
    for node in ("one", "two"):
        received = (
            await hub.until(lambda of, one, node=node: of == node and report("p", DONE)(of, one))
        ).sweep
        if node == "two":
            assert not received.metrics
            continue
        assert [one.metric for one in received.metrics] == ["pair-latency", "pair-bandwidth"]
        assert {(one.outcome, one.partner) for one in received.metrics} == {(MEASURED, "two")}
        assert all(len(one.samples) >= 3 and min(one.samples) > 0 for one in received.metrics)
        assert [one.higher_is_better for one in received.metrics] == [False, True]


async def test_an_absent_partner_gives_no_measurement(join: HostMaker, hub: FakeHub, short: Any) -> None:
    await join("one")
    two = await join("two")
    order = pair("p", hub_pb2.SweepPair.MEASURER, two)
    order.deadline_seconds = 2
    hub.send("one", sweep_order=order)
    received = (await hub.until(report("p", DONE))).sweep
    assert {one.outcome for one in received.metrics} == {hub_pb2.SweepMetric.TIMED_OUT}
    assert not any(one.samples for one in received.metrics)


async def echo(host: Host, identity: Identity | None, sweep: str) -> grpc.StatusCode:
    name, authority = terms.agent_server_name(host.node), host.settings.ca_file.read_bytes()
    async with dial(host.peer_address, name, authority, identity) as channel:
        stub = hub_pb2_grpc.PairsStub(channel)
        try:
            await stub.Echo(hub_pb2.EchoRequest(sweep=sweep), timeout=5)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


async def test_a_stranger_does_not_delay_the_partner(
    join: HostMaker, hub: FakeHub, authority: Authority
) -> None:
    one, two = await join("one"), await join("two")
    hub.send("two", sweep_order=pair("p", hub_pb2.SweepPair.RESPONDER, one))
    await hub.until(report("p", hub_pb2.SweepReport.RUNNING))
    name, ca = terms.agent_server_name(two.node), two.settings.ca_file.read_bytes()
    async with (
        dial(two.peer_address, name, ca, authority.identity("three")) as strange,
        dial(two.peer_address, name, ca, authority.identity("one")) as partner,
    ):
        silent = hub_pb2_grpc.PairsStub(strange).Transfer(timeout=30)
        await silent.wait_for_connection()
        pour = hub_pb2_grpc.PairsStub(partner).Transfer(
            iter([hub_pb2.TransferPiece(sweep="p", data=b"12")]), timeout=10
        )
        assert (await pour).bytes == 2
        await silent.write(hub_pb2.TransferPiece(sweep="p", data=b"3"))
        assert await silent.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_only_the_partner_measures_and_only_in_its_sweep(
    join: HostMaker, hub: FakeHub, authority: Authority
) -> None:
    one, two = await join("one"), await join("two")
    denied = grpc.StatusCode.PERMISSION_DENIED
    assert await echo(two, authority.identity("one"), "p") is denied
    hub.send("two", sweep_order=pair("p", hub_pb2.SweepPair.RESPONDER, one))
    await hub.until(report("p", hub_pb2.SweepReport.RUNNING))
    assert await echo(two, authority.identity("one"), "p") is grpc.StatusCode.OK
    assert await echo(two, authority.identity("one"), "q") is denied
    assert await echo(two, authority.identity("three"), "p") is denied
    stranger = authority.identity("one", "one.example.com")
    assert await echo(two, stranger, "p") is grpc.StatusCode.UNAUTHENTICATED
    assert await echo(two, None, "p") is grpc.StatusCode.UNAVAILABLE
    hub.send("two", sweep_cancel=hub_pb2.SweepCancel(name="p"))
    await hub.until(report("p", hub_pb2.SweepReport.CANCELLED))
    assert await echo(two, authority.identity("one"), "p") is denied
