"""Tests of commands to agents, and of corrected peer addresses."""

from __future__ import annotations

import pytest
from tests.unit.operator.hub_agents import AgentsHarness, report

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.commands import PickPort
from convoy_controllers.testing.builders import make_job
from convoy_operator import views


class TestCommands(AgentsHarness):
    async def test_a_command_for_an_unknown_agent_is_dropped_and_counted(self) -> None:
        self.hub.commands.send(PickPort("n9", "u", 1))
        assert self.hub.context.metrics.commands_dropped._value.get() == 1

    async def test_an_agent_with_a_full_outbox_is_disconnected(self) -> None:
        stream = self.join("n0")
        for n in range(stream.outbox.maxsize + 1):
            self.hub.commands.send(PickPort("n0", "u", n))
        assert stream.superseded.is_set()

    async def test_nodes_are_unsettled_until_agents_connect_or_time_out(self) -> None:
        self.join("n0")
        assert self.hub.monitor.unsettled({"n0"}) == 0
        assert self.hub.monitor.unsettled({"n0", "n1"}) == 5.5
        self.now += 4
        assert self.hub.monitor.unsettled({"n1"}) == 1.5
        self.now += 2
        assert self.hub.monitor.unsettled({"n1"}) == 0

    async def test_a_moved_peer_is_announced_until_reports_have_the_new_address(self) -> None:
        asks = report(peers=[wire.NodeAddress(node="n1", peer_address="n1:old")])
        stream = self.join("n0", asks)
        self.hub.directory.poll()
        assert stream.outbox.empty(), "that agent has not connected yet, so no better address is known"
        self.join("n1")
        self.hub.directory.poll()
        moved = stream.outbox.get_nowait().peer_moved
        assert (moved.pod_uid, moved.node, moved.peer_address) == ("u", "n1", "n1:8472")
        self.hub.reports.record("n0", asks)
        assert stream.outbox.empty(), "the correction is on its way"
        self.now += 2
        self.hub.reports.record("n0", asks)
        assert stream.outbox.get_nowait().HasField("peer_moved"), "the report still has the wrong address"
        self.hub.streams.join(wire.Hello(node="n1", peer_address="n1:9"))
        self.hub.directory.poll()
        assert stream.outbox.get_nowait().peer_moved.peer_address == "n1:9", "the address changed"
        self.hub.streams.join(wire.Hello(node="n1", peer_address="n1:8472"))
        self.hub.reports.record("n0", report(peers=[wire.NodeAddress(node="n1", peer_address="n1:8472")]))
        self.hub.directory.poll()
        assert stream.outbox.empty()

    async def test_corrections_of_peer_addresses_are_sent_once_and_bounded(self) -> None:
        def hello(nodes: list[str]) -> wire.Hello:
            asks = [wire.NodeAddress(node=node, peer_address="wrong") for node in nodes]
            pods = [report(pod_uid=f"u{number}", peers=asks) for number in range(512)]
            return wire.Hello(node="n0", peer_address="n0:8472", pods=pods)

        dropped = self.hub.context.metrics.commands_dropped._value
        stream = self.hub.streams.join(hello(["n0"] * 64))
        assert stream.outbox.qsize() == 512 and not stream.superseded.is_set()
        for number in range(64):
            self.join(f"n{number}")
        stream = self.hub.streams.join(hello([f"n{number}" for number in range(64)]))
        assert stream.outbox.full() and stream.superseded.is_set()
        assert dropped.get() == 1, "the rest is not sent"

    async def test_an_agent_is_charged_for_peer_requests_beyond_110_pods(self) -> None:
        asks = [wire.NodeAddress(node=f"n{number}") for number in range(64)]
        hello = wire.Hello(pods=[report(pod_uid=f"u{number}", peers=asks[:6]) for number in range(110)])
        for _ in range(20):
            self.hub.registry.charge("n0", wire.AgentMessage(hello=hello))
        assert not self.hub.registry.debt("n0")
        for _ in range(3):
            hello = wire.Hello(pods=[report(pod_uid=f"u{number}", peers=asks) for number in range(512)])
            self.hub.registry.charge("n1", wire.AgentMessage(hello=hello))
        assert self.hub.registry.debt("n1") > 3
        for _ in range(2000):
            self.hub.registry.charge("n2", wire.AgentMessage(pod=report(peers=asks)))
        assert self.hub.registry.debt("n2") > 9

    async def test_a_new_leader_corrects_peer_addresses_of_a_hello(self) -> None:
        self.join("n1")
        self.hub.directory.poll()
        stream = self.join("n0", report(peers=[wire.NodeAddress(node="n1", peer_address="n1:old")]))
        assert stream.outbox.get_nowait().peer_moved.peer_address == "n1:8472"

    @pytest.mark.parametrize(("fencing", "notified"), [("Strict", True), ("Commit", False)])
    async def test_peers_of_a_strict_job_are_notified_of_a_moved_agent(
        self, fencing: str, notified: bool
    ) -> None:
        job = make_job(recovery={"fencing": fencing}).to_dict()
        job["metadata"] |= {"namespace": "ns", "resourceVersion": "1"}
        self.cache.jobs.upsert(views.cached_object(job))
        self.add_pod("v", "n1")
        stream = self.join("n0", report())
        self.join("n1", report(pod_uid="v"))
        self.hub.directory.poll()
        assert stream.outbox.empty(), "a new leader learns addresses, but none changed"
        self.hub.streams.join(wire.Hello(node="n1", peer_address="n1:9", pods=[report(pod_uid="v")]))
        self.hub.directory.poll()
        if notified:
            moved = stream.outbox.get_nowait().peer_moved
            assert (moved.pod_uid, moved.node, moved.peer_address) == ("u", "n1", "n1:9")
        assert stream.outbox.empty()

    async def test_a_command_is_not_repeated_immediately(self) -> None:
        stream = self.join("n0")
        for _ in range(3):
            self.hub.commands.send(PickPort("n0", "u", 1))
        self.hub.commands.send(PickPort("n0", "u", 2))
        assert [stream.outbox.get_nowait().pick_port.incarnation for _ in range(2)] == [1, 2]
        assert stream.outbox.empty()
        self.now += 2
        self.hub.commands.send(PickPort("n0", "u", 1))
        assert stream.outbox.get_nowait().pick_port.incarnation == 1
        self.hub.commands.send(PickPort("n0", "u", 1))
        assert self.join("n0").outbox.empty()
        self.hub.commands.send(PickPort("n0", "u", 1))
        assert not self.hub.registry.ensure("n0").stream.outbox.empty(), (
            "the agent may not know the other one"
        )
