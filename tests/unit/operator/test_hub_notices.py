"""Tests of the hub's record of notices, and of the orders that it sends to agents."""

from __future__ import annotations

from typing import Any

from tests.unit.operator.hub_agents import AgentsHarness

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.resources import SPOT_POOLS
from convoy_controllers.spotpool.notice import UNJOINED
from convoy_crds.spotpool_status import NoticeKind, NoticeSource
from convoy_operator import views

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

    def add_pool(self, notices: list[dict[str, Any]] | None = None, version: str = "1") -> None:
        raw = {
            "apiVersion": "convoy.dev/v1alpha1",
            "kind": "SpotPool",
            "metadata": {"name": "pool", "uid": "pool", "resourceVersion": version},
            "spec": {
                "selector": {"matchLabels": {"spot": "y"}},
                "maxNodes": 2,
                "allowedNamespaces": ["*"],
                "price": {"onDemandPerHour": 1.0, "spot": {"perHour": 0.3}},
                "notice": {"metadata": "AWS"},
            },
            "status": {"notices": notices or []},
        }
        self.cache.upsert(SPOT_POOLS, raw)

    def report(self, reporter: str, source: str, **more: Any) -> None:
        notice = wire.Notice(source=source, kind="Preemption", at_unix_ms=1_000_000_000, **more)
        self.hub.notices.record(reporter, wire.Notices(boot_id="boot", notices=[notice]))

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
