"""Tests of the hub's record of notices, and of the orders that it sends to agents."""

from __future__ import annotations

from typing import Any

from tests.unit.operator.hub_agents import AgentsHarness

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.resources import SPOT_POOLS, TRAINING_JOBS
from convoy_controllers.spotpool.notice import UNJOINED
from convoy_crds.spotpool import KIND
from convoy_crds.spotpool_status import NoticeKind, NoticeSource
from convoy_operator import views
from convoy_operator.hub.notice_polls import LASTING_SECONDS, NOT_CONNECTED, NOT_REPORTED

SCALE_SET = "azure:///subscriptions/s/virtualMachineScaleSets/pool/virtualMachines/"


class TestNotices(AgentsHarness):
    def add_node(self, name: str, *, ready: str = "True", message: str = "", version: str = "1") -> None:
        raw: dict[str, Any] = {
            "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": version},
            "spec": {"providerID": SCALE_SET + "0"},
            "status": {
                "nodeInfo": {"bootID": "boot"},
                "conditions": [{"type": "Ready", "status": ready, "message": message}],
            },
        }
        raw["metadata"]["labels"] = {"spot": "y"}
        self.cache.nodes.upsert(views.node(raw))

    def add_pool(
        self, notices: list[dict[str, Any]] | None = None, version: str = "1", metadata: str = "AWS"
    ) -> None:
        raw = {
            "apiVersion": "convoy.dev/v1alpha1",
            "kind": "SpotPool",
            "metadata": {"name": "pool", "uid": "pool", "resourceVersion": version},
            "spec": {
                "selector": {"matchLabels": {"spot": "y"}},
                "maxNodes": 2,
                "allowedNamespaces": ["*"],
                "price": {"onDemandPerHour": 1.0, "spot": {"perHour": 0.3}},
                "notice": {"metadata": metadata},
            },
            "status": {"notices": notices or []},
        }
        self.cache.upsert(SPOT_POOLS, raw)

    def report(self, reporter: str, source: str, **more: Any) -> None:
        notice = wire.Notice(source=source, kind="Preemption", at_unix_ms=1_000_000_000, **more)
        self.hub.notices.record(reporter, wire.Notices(boot_id="boot", notices=[notice]))

    def poll(self, metadata: str = "", problem: str = "", seconds: float = 0.0) -> dict[str, str]:
        """Let n0's agent report the state of its polls, and time pass. Return the problems that last."""
        state = wire.NoticePoll(metadata=metadata, problem=problem) if metadata else None
        self.hub.notices.record("n0", wire.Notices(boot_id="boot", poll=state))
        self.hub.notices.poll()
        self.now += seconds
        self.hub.notices.poll()
        return dict(self.hub.reader.notice_problems())

    def test_a_notice_holds_until_its_source_withdraws_it(self) -> None:
        self.add_node("n0")
        news: list[int] = []
        self.hub.notices.on_news = lambda: news.append(1)
        self.report("n0", "AWS")
        self.report("n0", "AWS")
        (found,) = self.hub.reader.notices()["n0"]
        assert (found.source, found.kind, found.at) == (NoticeSource.AWS, NoticeKind.PREEMPTION, 1e6)
        assert (found.node_uid, found.boot_id, found.provider_id) == ("uid-n0", "boot", SCALE_SET + "0")
        assert len(news) == 1, "a repeated notice is no news"
        self.hub.notices.record("n0", wire.Notices(boot_id="boot"))
        assert not self.hub.reader.notices() and len(news) == 2

    def test_a_stopped_agent_is_a_notice_only_if_the_node_shuts_down(self) -> None:
        self.add_node("n0")
        self.report("n0", "Sigterm")
        assert not self.hub.reader.notices(), "the DaemonSet was updated"
        self.add_node("n0", ready="False", message="container runtime is down", version="2")
        assert not self.hub.reader.notices()
        self.add_node("n0", ready="False", message="[node is shutting down]", version="3")
        assert self.hub.reader.notices()["n0"][0].source is NoticeSource.SIGTERM

    def test_what_an_agent_may_not_report_is_ignored(self) -> None:
        self.add_node("n0")
        for source, more in (
            ("Taint", {}),
            ("Moon", {}),
            ("AWS", {"provider_id": SCALE_SET + "1"}),
            ("AWS", {"node": "n1", "pod_uid": "u"}),
            ("Ray", {}),
            ("Ray", {"node": "n1", "pod_uid": "u"}),
            (
                "Azure",
                {"provider_id": "azure:///subscriptions/s/virtualMachineScaleSets/x/virtualMachines/1"},
            ),
        ):
            self.report("n0", source, **more)
            assert not self.hub.reader.notices(), (source, more)

    def add_worker(self, job: str, name: str, node: str, ip: str) -> None:
        """Add a job, and one of its pods on a node."""
        self.cache.upsert(
            TRAINING_JOBS,
            {"metadata": {"name": job, "namespace": "ns", "uid": f"uid-{job}", "resourceVersion": "1"}},
        )
        owner = {"uid": f"uid-{job}", "controller": True}
        raw = {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": name,
                "resourceVersion": "1",
                "labels": {"convoy.dev/job": job},
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": node},
            "status": {"podIP": ip},
        }
        self.cache.pods.upsert(views.pod(raw))

    def test_a_program_reports_nodes_that_run_its_job_alone(self) -> None:
        for node in ("n0", "n1"):
            self.add_node(node)
        self.add_worker("mine", "driver", "n0", "10.0.0.1")
        self.add_worker("mine", "worker", "n1", "10.0.0.2")
        self.report("n1", "Ray", pod_uid="driver", node="n1")
        assert not self.hub.reader.notices(), "the pod is on another node than the agent"
        self.hub.notices.drop_node("n1")
        for named in ("n1", "10.0.0.2"):
            self.report("n0", "Ray", pod_uid="driver", node=named, deadline_unix_ms=1_000_030_000)
            (found,) = self.hub.reader.notices()["n1"]
            assert (found.node_uid, found.deadline) == ("uid-n1", 1_000_030.0)
        self.add_worker("other", "neighbour", "n1", "10.0.0.3")
        assert not self.hub.reader.notices(), "the report would drain another job's pod"

    def test_a_machine_that_has_not_joined_is_kept_for_an_hour(self) -> None:
        self.add_node("n0")
        self.report("n0", "Azure", provider_id=SCALE_SET + "7")
        (found,) = self.hub.reader.notices()[UNJOINED]
        assert (found.provider_id, found.node_uid, found.boot_id) == (SCALE_SET + "7", "", "")
        self.now += 3601
        assert not self.hub.reader.notices()

    async def test_an_agent_gets_its_pool_s_orders_once_per_stream_and_change(self) -> None:
        self.add_node("n0")
        self.add_pool()
        stream = self.join("n0")
        while not stream.outbox.empty():
            stream.outbox.get_nowait()
        self.hub.notices.poll()
        self.hub.notices.poll()
        order = stream.outbox.get_nowait().spot_node
        assert (order.metadata, order.HasField("notice")) == ("AWS", False)
        assert stream.outbox.empty()
        notice = {
            "node": "n0",
            "nodeUid": "uid-n0",
            "at": "2026-11-27T00:00:00Z",
            "deadline": "2026-11-27T00:02:00Z",
            "sources": ["AWS"],
        }
        self.add_pool([notice], "2")
        self.hub.notices.poll()
        sent = stream.outbox.get_nowait().spot_node.notice
        assert (sent.kind, [*sent.sources]) == ("Preemption", ["AWS"])
        assert sent.deadline_unix_ms - sent.at_unix_ms == 120_000
        self.add_pool([{**notice, "state": "FalseAlarm"}], "3")
        self.hub.notices.poll()
        assert not stream.outbox.get_nowait().spot_node.HasField("notice")

    async def test_an_agent_that_does_not_read_the_service_is_a_problem_after_a_while(self) -> None:
        self.add_node("n0")
        self.add_pool()
        self.join("n0")
        assert self.poll("AWS", "", 10_000) == {}
        assert self.poll("AWS", "status 503", LASTING_SECONDS - 1) == {}
        assert self.poll("AWS", "", 1) == {}, "the service was readable in between"
        assert self.poll("AWS", "status 503", LASTING_SECONDS) == {"n0": "status 503"}
        assert self.poll("AWS", "", 0) == {}

    async def test_an_agent_must_poll_the_service_that_the_pool_names(self) -> None:
        self.add_node("n0")
        self.add_pool()
        stream = self.join("n0")
        assert self.poll("GCP", "", LASTING_SECONDS) == {"n0": NOT_REPORTED}
        assert self.poll("", "", 0) == {"n0": NOT_REPORTED}
        self.hub.streams.leave(stream)
        assert self.poll("AWS", "", 0) == {"n0": NOT_CONNECTED}
        self.add_pool(version="2", metadata="None")
        assert self.poll("AWS", "", LASTING_SECONDS) == {}
        self.add_pool(version="3", metadata="GCP")
        assert self.poll("AWS", "", LASTING_SECONDS - 1) == {}, "another service has another start"

    async def test_nodes_of_a_pool_raise_no_alarm_of_silence(self) -> None:
        for number in range(8):
            self.add_node(f"n{number}")
            self.join(f"n{number}")
        self.join("other")
        self.add_pool()
        self.hub.notices.poll()
        self.now += 60
        self.hub.monitor.record_sign("other")
        liveness = self.hub.monitor.liveness
        assert not liveness.alarm(self.now)
        self.cache.objects(KIND).remove(next(iter(self.cache.objects(KIND))))
        self.hub.notices.poll()
        assert liveness.alarm(self.now), "without the pool, most agents are silent"
