"""Tests of the hub's records of the requests of serving pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.operator.hub_agents import AgentsHarness

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.cached import Pod
from convoy_controllers.views import PodView
from convoy_crds.terms import LABEL_INDEX
from convoy_operator import views


def reported(requests: int = 0, uid: str = "u", **more: Any) -> wire.PodTraffic:
    latency = wire.Latencies(bounds=[0.1, 1.0], counts=[requests, 0, 0])
    fields = {"incarnation": 1, "requests": requests, "latency": latency, **more}
    return wire.PodTraffic(pod_uid=uid, **fields)


class TestTraffic(AgentsHarness):
    async def test_a_report_counts_only_from_the_node_of_the_pod(self) -> None:
        self.hub.traffic.record("n1", reported(5))
        assert self.hub.reader.traffic((self.pod,)) is None
        self.hub.traffic.record("n0", reported(5, uid="unknown"))
        assert self.hub.reader.traffic((self.pod,)) is None
        self.hub.traffic.record("n0", reported(5, queue=2))
        found = self.hub.reader.traffic((self.pod,))
        assert found is not None and found.queue == 2

    async def test_the_load_of_a_pod_is_that_of_its_reports(self) -> None:
        assert self.hub.reader.loads((self.pod,)) == {}
        self.hub.traffic.record("n0", reported(5))
        self.now += 10
        self.hub.traffic.record("n0", reported(25, queue=2))
        found = self.hub.reader.loads((self.pod,))["u"]
        assert (found.waiting, found.requests_per_second) == (2, 2.0)
        self.now += 16
        assert self.hub.reader.loads((self.pod,)) == {}, "the agent is silent"

    async def test_requests_queue_the_job_at_the_pace_of_progress(self) -> None:
        self.hub.traffic.record("n0", reported())
        assert self.queue.drain() == [], "a pod at rest queues nothing"
        self.now += 10
        self.hub.traffic.record("n0", reported(20))
        assert self.queue.drain() == [10.0]
        found = self.hub.reader.traffic((self.pod,))
        assert found is not None and found.requests_per_second == 2.0
        assert found.p95 is not None and found.p95 <= 0.1

    async def test_a_request_that_an_activator_begins_to_hold_queues_the_job_at_once(self) -> None:
        raw = {"name": "job-a", "namespace": "ns", "uid": "a", "resourceVersion": "1"}
        labels = {"convoy.dev/job": "job", "convoy.dev/role": "activator"}
        pod = {"metadata": {**raw, "labels": labels}, "spec": {"nodeName": "n0"}}
        self.cache.pods.upsert(views.pod(pod))
        for queue, delays in ((0, []), (1, [0.0]), (2, [10.0]), (0, [10.0]), (0, []), (3, [0.0])):
            self.hub.traffic.record("n0", reported(uid="a", queue=queue))
            assert self.queue.drain() == delays

    async def test_the_job_is_queued_once_after_its_last_request(self) -> None:
        delays = []
        for step in range(20):
            self.hub.traffic.record("n0", reported(min(step, 2)))
            delays += self.queue.drain()
            self.now += 10
        found = self.hub.reader.traffic((self.pod,))
        assert found is not None and found.requests_per_second == 0.0
        assert 7 <= len(delays) <= 10 and self.queue.drain() == []

    async def test_the_totals_of_a_deleted_pod_are_dropped(self) -> None:
        self.hub.traffic.record("n0", reported(5, queue=2))
        known = self.cache.pods.by_uid("u")
        assert known is not None
        self.cache.pods.remove(known)
        assert self.hub.traffic.series((self.pod,)) == {}
        assert self.hub.reader.traffic((self.pod,)) is None

    async def test_an_invalid_histogram_is_ignored(self) -> None:
        for latency in (
            wire.Latencies(bounds=[0.1], counts=[1]),
            wire.Latencies(bounds=[0.1] * 65, counts=[1] * 66),
        ):
            self.hub.traffic.record("n0", reported(5, latency=latency))
            self.now += 10
        found = self.hub.reader.traffic((self.pod,))
        assert found is not None and found.p95 is None

    async def test_a_slow_replica_is_named_and_queues_the_job(self) -> None:
        uids = ["u", "v", "w", "x"]
        pods = tuple(self.replica(uid) for uid in uids)
        for window in range(60):
            for uid in uids:
                seconds = 2.0 * window + (1.2 * max(0, window - 15) if uid == "v" else 0.0)
                more = {"tokens": 1000 * window, "compute_seconds": seconds}
                self.hub.traffic.record("n0", reported(window, uid=uid, **more))
            self.now += 10
        found = self.hub.reader.traffic(pods)
        assert found is not None and [one.pod for one in found.slow] == ["v"]
        assert 0.0 in self.queue.drain(), "the finding is news"
        known = self.cache.pods.by_uid("w")
        assert known is not None
        self.cache.pods.remove(known)
        found = self.hub.reader.traffic(pods)
        assert found is not None and found.slow == (), "other peers have a new detector"

    def replica(self, uid: str) -> PodView:
        """Add a pod in slot 0 of a replica."""
        view: PodView = replace(self.pod, uid=uid, name=uid, node="n0", labels={LABEL_INDEX: "0"})
        self.cache.pods.upsert(Pod("ns", 2, "job", view))
        return view

    async def test_an_agent_is_charged_for_each_pod_with_requests(self) -> None:
        record = self.hub.registry.ensure("n0")
        message = wire.AgentMessage(traffic=wire.Traffic(pods=[wire.PodTraffic()] * 100_000))
        record.charge(message)
        assert record.pace.debt > 10

    async def test_the_progress_of_a_load_is_part_of_the_rank(self) -> None:
        loading = wire.RankReport(rank=0, loading_unix_ms=5_000)
        self.join("n0", wire.PodReport(pod_uid="u", ranks=[loading]))
        assert self.hub.reader.slots((self.pod,))["u"].ranks[0].loading == 5.0
