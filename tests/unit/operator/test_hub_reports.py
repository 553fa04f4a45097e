"""Tests of agents' reports: the reports that count, and the reports that queue a job."""

from __future__ import annotations

from math import inf

from tests.unit.operator.hub_agents import STATE, AgentsHarness, rank, report

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire.callers import Caller
from convoy_operator.hub.sessions import Sessions
from convoy_operator.metrics import Metrics


class TestReports(AgentsHarness):
    async def test_a_report_counts_only_from_the_node_of_the_pod(self) -> None:
        self.join("n1", report())
        assert self.hub.reader.slots((self.pod,)) == {}
        assert self.queue.drain() == []
        self.join("n0", report(incarnation=1))
        assert self.hub.reader.slots((self.pod,))["u"].incarnation == 1

    async def test_a_report_received_before_the_watch_event_is_kept(self) -> None:
        self.join("n0", report(pod_uid="later"))
        pod = self.add_pod("later", "n0")
        assert self.hub.reader.slots((pod,))["later"].launcher_connected

    async def test_an_exit_wakes_the_job_immediately_and_progress_does_not(self) -> None:
        self.join("n0", report(ranks=[rank()]))
        self.queue.drain()
        self.hub.reports.record("n0", report(ranks=[rank(progress=wire.Progress(step=1))]))
        assert self.queue.drain() == [0.15], "the first step queues the job"
        self.hub.reports.record("n0", report(ranks=[rank(progress=wire.Progress(step=2))]))
        assert self.queue.drain() == [10.0]
        self.hub.reports.record("n0", report(ranks=[rank(progress=wire.Progress(step=2))]))
        assert self.queue.drain() == [], "nothing changed"
        self.hub.reports.record("n0", report(ranks=[rank(STATE.EXITED)]))
        assert self.queue.drain() == [0.0]

    async def test_launchers_of_a_silent_agent_are_not_connected(self) -> None:
        self.join("n0", report(incarnation=1))
        self.hub.monitor.poll()
        self.queue.drain()
        self.now += 6
        self.hub.monitor.poll()
        assert self.queue.drain() == [0.0]
        view = self.hub.reader.slots((self.pod,))["u"]
        assert not view.launcher_connected and view.incarnation == 1
        self.hub.monitor.record_sign("n0")
        assert self.hub.reader.slots((self.pod,))["u"].launcher_connected
        assert self.queue.drain() == [0.15]

    async def test_a_new_hello_replaces_all_earlier_reports(self) -> None:
        other = self.add_pod("v", "n0")
        first = self.join("n0", report(), report(pod_uid="v"))
        self.join("n0", report())
        assert first.superseded.is_set()
        assert set(self.hub.reader.slots((self.pod, other))) == {"u"}

    async def test_messages_of_a_superseded_stream_are_ignored(self) -> None:
        first = self.join("n0", report())
        self.join("n0", report(incarnation=9))
        left = [wire.AgentMessage(pod=report(incarnation=3)), wire.AgentMessage(goodbye=wire.Goodbye())]

        class Context:
            async def read(self) -> wire.AgentMessage | None:
                return left.pop(0) if left else None

        its = Sessions(
            self.hub, Metrics(), leads=lambda: True, leader_address=str, renewals=int, own_address="own"
        )
        await its._read_messages(Context(), first, Caller("n0", inf))  # type: ignore[arg-type]
        assert self.hub.reader.slots((self.pod,))["u"].incarnation == 9

    async def test_a_heartbeat_gets_a_reply_and_keeps_the_agent_connected(self) -> None:
        stream = self.join("n0")
        self.now += 6
        self.hub.streams.heartbeat(stream, wire.Heartbeat(sent_unix_ms=1234))
        assert stream.outbox.get_nowait().heartbeat_reply.sent_unix_ms == 1234
        assert self.hub.monitor.connected("n0")

    async def test_heartbeat_replies_that_do_not_fit_are_dropped(self) -> None:
        stream = self.join("n0")
        for n in range(stream.outbox.maxsize + 10):
            self.hub.streams.heartbeat(stream, wire.Heartbeat(sent_unix_ms=n))
        assert stream.outbox.full() and not stream.superseded.is_set()
        assert self.hub.context.metrics.commands_dropped._value.get() == 0

    async def test_attestations_of_an_agent_count_until_the_fencing_time(self) -> None:
        stream = self.join("n1")
        self.hub.streams.heartbeat(
            stream, wire.Heartbeat(attestations=[wire.Attestation(node="n0", age_ms=15_000)])
        )
        assert self.hub.reader.nodes((self.pod,))["n0"].attested_by == {"n1"}
        self.now += 5
        assert self.hub.reader.nodes((self.pod,))["n0"].attested_by == {"n1"}
        self.now += 1
        assert self.hub.reader.nodes((self.pod,))["n0"].attested_by == set(), (
            "longer ago than the fencing time"
        )

    async def test_attestations_for_nodes_without_pods_are_dropped(self) -> None:
        stream = self.join("n1")
        made_up = [wire.Attestation(node=f"made-up-{n}") for n in range(1000)]
        self.hub.streams.heartbeat(
            stream, wire.Heartbeat(attestations=[*made_up, wire.Attestation(node="n0")])
        )
        assert set(self.hub.monitor._attestations._requested) == {"n0"}

    async def test_the_time_of_the_last_step_uses_the_clock_of_the_operator(self) -> None:
        def stepped() -> float:
            return self.hub.reader.slots((self.pod,))["u"].stepped

        step = lambda n: report(incarnation=1, ranks=[rank(progress=wire.Progress(step=n))])  # noqa: E731
        self.join("n0", step(7))
        assert stepped() == 0.0, "the end of step 7 is unknown"
        self.now += 1
        self.hub.reports.record("n0", step(8))
        assert stepped() == 1e6 + 101
        self.now += 1
        self.hub.reports.record("n0", step(8))
        assert stepped() == 1e6 + 101
        self.hub.reports.record("n0", report(incarnation=2, ranks=[rank(progress=wire.Progress(step=9))]))
        assert stepped() == 1e6 + 101, "a restored step does not count"
