"""Tests of agents' streams: admission, rate limits, and the limits of the records."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs
from tests.unit.operator.hub_agents import Aborted, AgentsHarness, Silent, rank, report

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire.callers import Caller
from convoy_controllers.commands import PickPort
from convoy_operator.hub import sessions
from convoy_operator.hub.sessions import Sessions
from convoy_operator.hub.streams import Stream
from convoy_operator.metrics import Metrics


class TestStreams(AgentsHarness):
    @pytest.mark.parametrize(
        ("left", "welcomed", "code"),
        [(0.5, True, None), (0.0, False, grpc.StatusCode.UNAUTHENTICATED)],
        ids=["expires while the stream is quiet", "has expired"],
    )
    async def test_a_stream_lasts_no_longer_than_its_certificate(
        self, monkeypatch: pytest.MonkeyPatch, left: float, welcomed: bool, code: grpc.StatusCode | None
    ) -> None:
        self.add_node("n0")
        first = self.join("n0")
        context = await self.session(monkeypatch, "n0", left)
        assert (bool(context.written), context.code) == (welcomed, code)
        assert first.superseded.is_set() is welcomed

    async def test_an_agent_of_an_unknown_node_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.add_node("n0")
        context = await self.session(monkeypatch, "n1", 1.0)
        assert (context.written, context.code) == ([], grpc.StatusCode.FAILED_PRECONDITION)
        assert not self.hub.registry.peer_address("n1")

    async def test_the_data_stored_per_node_is_bounded(self) -> None:
        long = "x" * 10_000
        ranks = [rank(stderr_tail=long) for _ in range(200)]
        asks = [wire.NodeAddress(node=long, peer_address=long)] * 100
        held = [wire.HeldJob(job_uid=f"{number}{long}", slot_token=long) for number in range(1000)]
        hardware = wire.Hardware(known=True, accelerators=[long] * 1000, driver=long)
        hello = wire.Hello(
            node="n0", peer_address=long, held_jobs=wire.HeldJobs(jobs=held), hardware=hardware
        )
        self.hub.streams.join(hello)
        for number in range(1000):
            self.hub.reports.record("n0", report(pod_uid=f"u{number}", ranks=ranks, peers=asks))
            self.hub.reports.record("n0", report(pod_uid=f"few{number}"))
            self.hub.reports.record("n0", report(pod_uid=f"{number}{long}"))
        agent = self.hub.registry.ensure("n0")
        sizes = [sum(len(one.stderr) for one in view.ranks) for view in agent.slots.values()]
        assert len(agent.slots) == 512 and sum(sizes) == 4096 * 2048 and max(sizes) == 64 * 2048
        assert {len(one) for peers in agent.peers.values() for place in peers for one in place} == {256}
        assert max(map(len, agent.peers.values())) == 64 and len(agent.peer_address) == 256
        assert len(agent.holdings) == 512 and {*map(len, agent.holdings.values())} == {4096}
        assert agent.hardware.ByteSize() < 32_768
        # A report on a pod that is already recorded is still accepted at the limit.
        self.hub.reports.record("n0", report(pod_uid="few0", incarnation=7))
        assert agent.slots["few0"].incarnation == 7

    async def test_only_a_flooding_agent_is_slowed(self) -> None:
        self.join("n0", report())
        self.join("n1", report())
        beat = wire.AgentMessage(heartbeat=wire.Heartbeat())
        large = wire.AgentMessage(pod=report(ranks=[rank(stderr_tail="x" * 2**20)]))
        for _ in range(1000):
            self.hub.registry.charge("n0", beat)
        assert not self.hub.registry.debt("n0")
        for _ in range(60):
            self.hub.registry.charge("n0", large)
        # Connect the flooding agent again. Its debt must not be reset.
        self.join("n0", report())
        assert self.hub.registry.debt("n0") > 1 and not self.hub.registry.debt("n1")
        self.now += 20
        assert not self.hub.registry.debt("n0")

    async def test_an_agent_is_charged_for_step_windows_beyond_64_ranks(
        self,
    ) -> None:
        def telemetry(pods: int, windows: int) -> wire.AgentMessage:
            one = wire.PodTelemetry(windows=[wire.StepWindow()] * windows)
            return wire.AgentMessage(telemetry=wire.Telemetry(pods=[one] * pods))

        self.hub.registry.charge("n0", telemetry(1, 64 * 32))
        for _ in range(100):
            self.hub.registry.charge("n0", telemetry(1, 64))
            self.now += 1
            assert not self.hub.registry.debt("n0")
        self.hub.registry.charge("n0", telemetry(64, 4096))
        assert self.hub.registry.debt("n0") > 50
        self.hub.registry.charge("n1", telemetry(100_000, 0))
        assert self.hub.registry.debt("n1") > 15

    async def test_an_agent_in_debt_is_refused_before_its_messages_are_read(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.add_node("n0")
        monkeypatch.setattr(sessions, "REFUSED_SECONDS", 0)
        monkeypatch.setattr(self.hub.registry, "debt", lambda node: 1.0)
        context = await self.session(monkeypatch, "n0", 1.0)
        assert (context.written, context.code) == ([], grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert len(context.messages) == 1 and not self.hub.registry.peer_address("n0")

    async def test_an_agent_is_charged_for_its_hello(self, monkeypatch: pytest.MonkeyPatch) -> None:
        spent: list[str] = []
        monkeypatch.setattr(self.hub.registry, "charge", lambda node, message: spent.append(node))
        await self.session(monkeypatch, "n0", 0.1)
        assert spent == ["n0"], "although the node does not exist"

    async def test_the_number_of_streams_of_an_agent_is_limited(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.add_node("n0")
        monkeypatch.setattr(sessions, "caller", lambda context: Caller("n0", inf))
        its = Sessions(
            self.hub, Metrics(), leads=lambda: True, leader_address=str, renewals=int, own_address="own"
        )
        silent = [Silent([]) for _ in range(sessions.MAX_STREAMS)]
        calls = [asyncio.create_task(its.Session(None, context)) for context in silent]
        await asyncio.sleep(0)
        monkeypatch.setattr(sessions, "REFUSED_SECONDS", 0)
        with capture_logs() as logged:
            for _ in range(100):
                late = Silent([])
                with pytest.raises(Aborted):
                    await its.Session(None, late)
                assert late.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        refusals = [
            one
            for one in logged
            if one["event"] == "agent exceeds its limit of messages or streams, its stream is refused"
        ]
        assert 20 <= len(refusals) <= 22, "repeated refusals must not fill the log"
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert not its._open

    async def test_the_next_message_is_read_after_the_debt_is_paid(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        beats = [wire.AgentMessage(heartbeat=wire.Heartbeat(sent_unix_ms=number)) for number in range(3)]
        order: list[object] = []
        debts = [0.0, 1.0, 2.0, 0.0]

        class Context:
            async def read(self) -> wire.AgentMessage | None:
                order.append("read")
                return beats.pop(0) if beats else None

        async def sleep(seconds: float) -> None:
            order.append(seconds)

        monkeypatch.setattr(sessions.asyncio, "sleep", sleep)
        monkeypatch.setattr(self.hub.registry, "debt", lambda node: debts.pop(0))
        monkeypatch.setattr(
            self.hub.registry, "charge", lambda node, message: order.append(f"pays at {node}")
        )
        monkeypatch.setattr(
            self.hub.streams, "heartbeat", lambda stream, beat: order.append(f"beat {beat.sent_unix_ms}")
        )
        its = Sessions(
            self.hub, Metrics(), leads=lambda: True, leader_address=str, renewals=int, own_address="own"
        )
        await its._read_messages(Context(), Stream("n0"), Caller("n0", inf))
        pays = "pays at n0"
        assert order == [
            *("read", pays, "beat 0"),
            *(1.0, "read", pays, "beat 1"),
            *(2.0, "read", pays, "beat 2"),
            "read",
        ]

    async def test_telemetry_is_recorded_in_parts_so_that_others_run(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        telemetry = wire.Telemetry(pods=[wire.PodTelemetry(pod_uid=uid) for uid in "ab"])
        left = [wire.AgentMessage(telemetry=telemetry)]
        order: list[str] = []

        def record(node: str, pod: wire.PodTelemetry, since: int = 0) -> int:
            order.append(f"{pod.pod_uid}{since}")
            return 7 if pod.pod_uid == "a" and not since else 0

        monkeypatch.setattr(self.hub.detectors, "record", record)

        class Context:
            async def read(self) -> wire.AgentMessage | None:
                return left.pop(0) if left else None

        metrics = Metrics()
        its = Sessions(
            self.hub, metrics, leads=lambda: True, leader_address=str, renewals=int, own_address="own"
        )

        async def other() -> None:
            for _ in range(3):
                order.append("other")
                await asyncio.sleep(0)

        listening = asyncio.create_task(its._read_messages(Context(), self.join("n0"), Caller("n0", inf)))
        await asyncio.gather(listening, asyncio.create_task(other()))
        assert order == ["a0", "other", "a7", "other", "b0", "other"]
        assert metrics.agent_messages.labels("telemetry")._value.get() == 1

    @pytest.mark.parametrize(
        ("addresses", "unreachable", "dies_at", "leads_at", "found", "seconds"),
        [
            (["", "own"], "", 0.0, 1.0, None, 1.0),
            (["other"], "", 99.0, 99.0, "other", 0.0),
            (["dead"], "dead", 0.0, 3.0, None, 3.0),
            (["dead"] * 20 + ["next"], "dead", 0.0, 99.0, "next", 2.0),
            (["dead"], "dead", 0.0, 99.0, "own", 5.0),
            (["dead"], "dead", 1.0, 99.0, "own", 5.0),
            (["well"], "well", 99.0, 99.0, "well", 5.0),
            ([""], "well", 99.0, 99.0, "own", 5.0),
        ],
    )
    def test_a_standby_redirects_agents_or_holds_them_until_there_is_a_leader(
        self,
        virtual: Any,
        addresses: list[str],
        unreachable: str,
        dies_at: float,
        leads_at: float,
        found: str | None,
        seconds: float,
    ) -> None:
        async def scenario() -> None:
            now = asyncio.get_running_loop().time
            began = now()
            its = Sessions(
                self.hub,
                Metrics(),
                leads=lambda: now() - began >= leads_at,
                leader_address=lambda: addresses.pop(0) if len(addresses) > 1 else addresses[0],
                renewals=lambda: int(min(now() - began, dies_at)),
                own_address="own",
            )
            assert await its._redirect_address(unreachable) == found
            assert now() - began == pytest.approx(seconds, abs=0.11)

        virtual(scenario())

    async def test_the_end_of_an_old_stream_does_not_end_the_new(self) -> None:
        first = self.join("n0")
        second = self.join("n0")
        self.hub.streams.leave(first)
        self.hub.commands.send(PickPort("n0", "u", 1))
        assert second.outbox.get_nowait().pick_port.incarnation == 1
