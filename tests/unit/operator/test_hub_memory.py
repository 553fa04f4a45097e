"""Tests of checkpoints in nodes' memory: the nodes that hold them, and their release."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from tests.unit.operator.hub_agents import AgentsHarness, report

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire.slot_tokens import SlotToken
from convoy_operator import views
from convoy_operator.hub.ca import Authority, make_authority
from convoy_operator.hub.slot_tokens import SlotTokenIssuer


class TestMemory(AgentsHarness):
    def holding(self, node: str, *uids: str) -> Any:
        held = [wire.HeldJob(job_uid=uid, slot_token=self.slot_token(node, uid)) for uid in uids]
        hello = wire.Hello(node=node, peer_address=f"{node}:8472", held_jobs=wire.HeldJobs(jobs=held))
        return self.hub.streams.join(hello)

    def slot_token(self, node: str, uid: str) -> str:
        return self.hub.tokens.sign(SlotToken(uid, 1, 0, node))

    def run_job(self, **status: Any) -> None:
        self.now += 1
        version = str(int(self.now))
        raw = {
            "metadata": {"name": "job", "namespace": "ns", "uid": "j", "resourceVersion": version},
            "spec": {"checkpoint": {"tiers": {"local": {}, "peer": {}}}},
            "status": status,
        }
        self.cache.jobs.upsert(views.cached_object(raw))

    def released(self, stream: Any) -> list[str]:
        """Poll twice. Return the jobs whose memory the node's agent is ordered to release."""
        for _ in range(2):
            self.now += 11
            self.hub.release_memory()
        messages = [stream.outbox.get_nowait() for _ in range(stream.outbox.qsize())]
        return [one.drop_job.job_uid for one in messages if one.HasField("drop_job")]

    async def test_memory_of_ended_or_deleted_jobs_is_released(self) -> None:
        stream = self.holding("n0", "j", "gone")
        self.run_job(phase="Running")
        assert self.released(stream) == ["gone"]
        self.run_job(phase="Succeeded")
        assert sorted(set(self.released(stream))) == ["gone", "j"]
        self.hub.registry.ensure("n0").record_holdings(wire.HeldJobs())
        assert self.released(stream) == []

    async def test_a_scan_reads_the_pods_of_a_job_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for node in ("n0", "n1", "n2"):
            self.holding(node, "j")
        self.run_job(phase="Running")
        looks = Mock(wraps=self.cache.pods.indexed)
        monkeypatch.setattr(self.cache.pods, "indexed", looks)
        self.now += 11
        self.hub.release_memory()
        assert looks.call_count == 1

    async def test_memory_that_is_unneeded_only_briefly_is_kept(self) -> None:
        stream = self.holding("n0", "j")
        self.now += 11
        self.hub.release_memory()
        self.run_job(phase="Running")
        assert self.released(stream) == []

    @pytest.mark.parametrize(
        ("mark", "expected"),
        [
            ({"incarnation": 3, "step": 5}, ["j"]),
            ({"incarnation": 2, "step": 5}, []),
            (None, []),
        ],
    )
    async def test_memory_on_nodes_left_by_a_job_is_released(self, mark: Any, expected: list[str]) -> None:
        self.add_pod("v", "n1")
        self.run_job(
            phase="Running",
            incarnation=3,
            internal={"incarnation": {"membership": "m"}},
            checkpoint={"watermarks": {"local": {"incarnation": 3, "step": 9}, "peer": mark}},
        )
        member, left = self.holding("n0", "j"), self.holding("n2", "j")
        assert self.released(left) == expected
        assert self.released(member) == []

    async def test_silent_agents_are_not_holders(self) -> None:
        self.holding("n0", "j")
        self.holding("n1", "j", "k")
        assert self.hub.reader.holders("j") == ("n0", "n1") and self.hub.reader.holders("k") == ("n1",)
        self.now += 60
        self.hub.monitor.record_sign("n1")
        assert self.hub.reader.holders("j") == ("n1",)

    async def test_a_node_without_a_valid_slot_token_is_not_a_holder(self) -> None:
        """Report checkpoints with missing or wrong slot tokens. These nodes must not count as holders,
        because the job would be restored from their checkpoints.
        """
        theirs = SlotTokenIssuer()
        theirs.start(Authority(make_authority()))
        shown = {
            "none": "",
            "another-s": self.slot_token("n1", "j"),
            "of-another-job": self.slot_token("of-another-job", "k"),
            "signed-by-others": theirs.sign(SlotToken("j", 1, 0, "signed-by-others")),
        }
        streams = {}
        for node, token in shown.items():
            held = wire.HeldJobs(jobs=[wire.HeldJob(job_uid="j", slot_token=token)])
            streams[node] = self.hub.streams.join(wire.Hello(node=node, peer_address=node, held_jobs=held))
        self.holding("n0", "j")
        assert self.hub.reader.holders("j") == ("n0",)
        for stream in streams.values():
            assert set(self.released(stream)) == {"j"}, "the memory of a finished job is released in any case"

    async def test_a_slot_token_of_another_authority_is_invalid(self) -> None:
        self.join("n0", report())
        known = [self.hub.reader.slots((self.pod,))["u"].slot_token_valid]
        # The empty authority stands for an agent that continues an older agent's assignment and does not know
        # the authority.
        for key in (self.authority.key_id, "another", self.authority.key_id, ""):
            self.hub.reports.record("n0", report(authority=key, incarnation=1))
            known.append(self.hub.reader.slots((self.pod,))["u"].slot_token_valid)
        assert known == [True, True, False, True, False]
        assert self.queue.drain()[-1] == 0.15, "the change queues the job"

    async def test_a_resent_assignment_has_the_same_slot_token(self) -> None:
        once = self.slot_token("n0", "j")
        assert self.slot_token("n0", "j") == once and self.slot_token("n1", "j") != once

    async def test_a_deleted_pod_is_removed(self) -> None:
        self.join("n0", report())
        self.queue.drain()
        self.hub.reports.remove("n0", "u")
        assert self.hub.reader.slots((self.pod,)) == {} and self.queue.drain() == [0.15]

    async def test_a_deleted_node_is_removed(self) -> None:
        self.join("n0", report())
        raw = {"metadata": {"name": "n0", "uid": "x", "resourceVersion": "1"}}
        self.cache.nodes.upsert(views.node(raw))
        self.cache.nodes.remove(views.node(raw))
        assert self.hub.reader.slots((self.pod,)) == {} and not self.hub.monitor.liveness.known("n0")

    async def test_an_agent_that_reconnects_after_its_node_is_deleted_is_removed(self) -> None:
        raw = {"metadata": {"name": "n2", "uid": "x", "resourceVersion": "1"}}
        self.cache.nodes.upsert(views.node(raw))
        first = self.join("n2")
        self.cache.nodes.remove(views.node(raw))
        assert first.superseded.is_set()
        again = self.join("n2")
        self.hub.release_memory()
        assert self.hub.registry.peer_address("n2"), "the agent may connect before the watch reports the node"
        self.hub.streams.leave(again)
        self.now += 20
        self.hub.monitor.poll()
        silent = self.hub.context.metrics.nodes_silent
        assert silent._value.get() == 1
        self.hub.release_memory()
        self.hub.monitor.poll()
        assert silent._value.get() == 0
        assert not self.hub.registry.peer_address("n2") and not [*self.hub.sweeps.all()]
