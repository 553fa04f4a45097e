"""Tests of the probes of stores. One agent probes at a time, and only its report counts; a good store is
probed again after an hour.
"""

from __future__ import annotations

from math import inf

import pytest
from tests.unit.operator.store_hub import HOURLY, Harness

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire.callers import Caller
from convoy_controllers.keys import Key
from convoy_crds.checkpointstore import KIND as CHECKPOINT_STORE
from convoy_crds.trainingjob import KIND as TRAINING_JOB
from convoy_operator import views
from convoy_operator.events import EventRecorder
from convoy_operator.hub.sessions import Sessions
from convoy_operator.metrics import Metrics
from convoy_operator.pod_events import PodEvents
from convoy_operator.queue import WorkQueue
from convoy_operator.reader import ClusterReader
from convoy_operator.reconcile import ReconcileContext, Reconciler
from convoy_operator.refusals import Refusals
from convoy_operator.settings import Settings

from .conftest import FakeApi


@pytest.fixture
async def it(api: FakeApi) -> Harness:
    return Harness(api)


class TestTrying:
    async def test_one_agent_at_a_time_probes_and_another_after_a_failure(self, it: Harness) -> None:
        for node in ("n0", "n1", "n2"):
            it.dial(node)
        await it.resolve()
        waited, order = [], []
        for _ in range(9):
            began = it.now
            while not (sent := it.poll()):
                it.now += 1
            ((node, (request,)),) = sent.items()
            assert request.probe
            waited.append(it.now - began)
            order.append(node)
            it.report(node, request, reached=False, conditional=True, message="refused")
            assert it.queue.drain() == [Key(CHECKPOINT_STORE.name, "", "s3")]
        assert order == ["n0", "n1", "n2"] * 3
        assert waited == [0, 5, 10, 20, 40, 80, 160, 300, 300]
        probe = it.seen().probe
        assert (probe.reached, probe.conditional, probe.message, probe.node) == (
            False,
            False,
            "refused",
            "n2",
        )

    async def test_a_reached_store_is_probed_hourly_by_the_same_agent(self, it: Harness) -> None:
        for node in ("n0", "n1"):
            it.dial(node)
        await it.resolve()
        (probe,) = it.sent("n0")
        it.report("n0", probe)
        it.poll()
        assert it.poll(HOURLY - 1) == {}
        assert [one.probe for one in it.poll(1)["n0"]] == [True]
        it.report("n0", probe, reached=False)
        assert not it.seen().probe.reached
        assert [one.conditional for one in it.poll(5)["n1"]] == [True], "an outage does not change this flag"

    async def test_nodes_that_use_a_store_probe_before_others(self, it: Harness) -> None:
        for node in ("n0", "n1", "n2", "n3"):
            it.dial(node)
        it.job("n1")
        it.job("n3")
        await it.resolve()
        it.sent("n3")
        order = []
        for _ in range(5):
            while not (sent := it.poll()):
                it.now += 1
            ((node, (*_, probe)),) = sent.items()
            order.append(node)
            it.report(node, probe, reached=False)
        assert order == ["n1", "n3", "n0", "n1", "n2"], "other nodes probe once all users have failed"

    async def test_an_agent_that_lost_the_use_of_a_store_stops_probing(self, it: Harness) -> None:
        for node in ("n0", "n1"):
            it.dial(node)
        await it.resolve()
        (probe,) = it.sent("n0")
        it.report("n0", probe)
        it.job("n1")
        it.poll()
        assert list(it.poll(HOURLY)) == ["n1"]

    async def test_without_agents_no_probe_is_sent(self, it: Harness) -> None:
        await it.resolve()
        assert it.poll(100) == {} and it.seen().probing_node == ""
        it.dial("n0")
        assert [one.probe for one in it.poll()["n0"]] == [True]
        assert it.seen().probing_node == "n0"

    async def test_a_probe_without_a_report_times_out(self, it: Harness) -> None:
        for node in ("n0", "n1"):
            it.dial(node)
        await it.resolve()
        (probe,) = it.sent("n0")
        assert it.poll(89) == {}
        assert it.poll(1) == {} and it.seen().probing_node == ""
        assert list(it.poll(5)) == ["n1"]
        it.report("n0", probe)
        assert it.seen().probe is None, "the report came too late"

    @pytest.mark.parametrize("how", ["leaves", "dials again", "is deleted"])
    async def test_the_probe_of_an_agent_ends_with_its_stream(self, it: Harness, how: str) -> None:
        for node in ("n0", "n1"):
            it.dial(node)
        await it.resolve()
        (probe,) = it.sent("n0")
        if how == "leaves":
            it.hub.streams.leave(it.streams["n0"])
        elif how == "dials again":
            it.dial("n0")
        else:
            raw = {"metadata": {"name": "n0", "uid": "x", "resourceVersion": "1"}}
            it.cache.nodes.upsert(views.node(raw))
            it.cache.nodes.remove(views.node(raw))
        it.report("n0", probe)
        assert it.seen().probe is None
        assert list(it.poll(5)) == ["n1"]

    @pytest.mark.parametrize(
        ("node", "change"),
        [
            ("n1", {}),
            ("", {}),
            ("n0", {"version": "0" * 64}),
            ("n0", {"version": ""}),
            ("n0", {"name": "other"}),
        ],
    )
    async def test_only_a_report_of_the_probing_agent_on_the_current_version_counts(
        self, it: Harness, node: str, change: dict[str, str]
    ) -> None:
        for one in ("n0", "n1"):
            it.dial(one)
        await it.resolve()
        (probe,) = it.sent("n0")
        it.queue.drain()
        it.report(node, probe, **change)
        assert it.seen().probe is None and it.queue.drain() == [] and it.poll() == {}
        it.report("n0", probe)
        assert it.seen().probe.conditional and it.queue.drain() == [Key(CHECKPOINT_STORE.name, "", "s3")]
        it.report("n0", probe, reached=False)
        assert it.seen().probe.reached, "the agent was asked once"

    async def test_a_report_on_old_credentials_is_ignored(self, it: Harness) -> None:
        it.dial("n0")
        await it.resolve()
        (old,) = it.sent("n0")
        it.keys(accessKey="new", secretKey="new")
        await it.resolve()
        it.report("n0", old)
        assert it.seen().probe is None

    async def test_a_report_is_received_through_the_stream(self, it: Harness) -> None:
        stream = it.hub.streams.join(wire.Hello(node="n0"))
        await it.resolve()
        probe = stream.outbox.get_nowait().store
        left = [wire.AgentMessage(store=wire.StoreReport(name="s3", version=probe.version, reached=True))]

        class Context:
            async def read(self) -> wire.AgentMessage | None:
                return left.pop(0) if left else None

        sessions = Sessions(
            it.hub, Metrics(), leads=lambda: True, leader_address=str, renewals=int, own_address="own"
        )
        await sessions._read_messages(Context(), stream, Caller("n0", inf))  # type: ignore[arg-type]
        assert it.seen().probe.reached and it.seen().probe.node == "n0"


async def test_a_store_is_resolved_before_its_plan(it: Harness) -> None:
    queue: WorkQueue[Key] = WorkQueue()
    metrics, settings, refusals = Metrics(), Settings(), Refusals(0.5, 60.0)
    context = ReconcileContext(
        gateway=it.api,
        node_gateway=it.api,
        cache=it.cache,
        queue=queue,
        recorder=EventRecorder(it.api, metrics, "test"),
        metrics=metrics,
        settings=settings,
        pod_events=PodEvents(it.api, it.cache, queue.add),
        send=it.hub.commands.send,
        unsettled=it.hub.monitor.unsettled,
        lookups={CHECKPOINT_STORE.name: it.hub.stores.resolve},
    )
    reconciler = Reconciler(context, ClusterReader(it.cache, it.hub.reader, refusals.standing), refusals)
    key = Key(CHECKPOINT_STORE.name, "", "s3")
    it.dial("n0")

    async def reason() -> tuple[str, str]:
        await reconciler.handle(key)
        (condition,) = it.api.objects["checkpointstores", "", "s3"]["status"]["conditions"]
        return condition["status"], condition["reason"]

    assert await reason() == ("False", "NotProbed")
    (probe,) = it.sent("n0")
    it.report("n0", probe)
    assert await reason() == ("True", "Probed")
    status = it.api.objects["checkpointstores", "", "s3"]["status"]
    assert status["capabilities"] == {"conditionalWrites": True, "checksums": True}
    assert (status["probedBy"], status["probedAt"]) == ("n0", "1970-01-01T00:16:40Z")
    assert key in queue, "its Secret is read again"
    assert await reason() == ("True", "Probed") and it.api.count("patch_status") == 2
    del it.api.objects["secrets", "convoy-system", "keys"]
    assert await reason() == ("False", "SecretNotFound")
    assert Key(TRAINING_JOB.name, "default", "job") not in queue
