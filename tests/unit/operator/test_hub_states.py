"""Tests of the states of ServingJobs' replicas in the hub: the nodes that hold them, their orders and
reports, and the release of their memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.unit.operator.hub_agents import AgentsHarness, report

from convoy_agents.pods import assignment
from convoy_agents.pods.assignment import NodeAddress
from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire.slot_tokens import SlotToken
from convoy_controllers.checkpoint.replica_state import state_uid
from convoy_controllers.commands import Assign, Member, ReplicaState
from convoy_controllers.views import CommitView, ReplicaStateView, SlotView
from convoy_crds.terms import LABEL_GROUP, LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from convoy_operator import views
from convoy_operator.hub import messages
from convoy_operator.hub.state_places import SUCCESSOR_SECONDS

JOB = "uid-of-job"


def uid_of(number: int, revision: str = "r1", job: str = JOB) -> str:
    return state_uid(job, "server", revision, number).text


OWN, SIBLING, OTHER = uid_of(0), uid_of(1), uid_of(0, "r2")


class TestStates(AgentsHarness):
    def holding(self, node: str, *uids: str, proof: str = OWN) -> Any:
        """Connect the agent of a node whose memory holds states. `proof`: the job of its slot token."""
        token = self.hub.tokens.sign(SlotToken(proof, 1, 0, node))
        held = [wire.HeldJob(job_uid=uid, slot_token=token) for uid in uids]
        hello = wire.Hello(node=node, peer_address=f"{node}:8472", held_jobs=wire.HeldJobs(jobs=held))
        return self.hub.streams.join(hello)

    def serve(self, *numbers: int, revision: str = "r1", **spec: Any) -> None:
        """Store the ServingJob with these replicas."""
        self.now += 1
        groups = [
            {"role": "server", "number": number, "revision": revision, "incarnation": 4} for number in numbers
        ]
        raw: Mapping[str, Any] = {
            "metadata": {"name": "llm", "namespace": "ns", "uid": JOB, "resourceVersion": str(int(self.now))},
            "spec": {"checkpoint": {"tiers": {"local": {}}}, **spec},
            "status": {"internal": {"groups": groups}},
        }
        self.cache.kinds["ServingJob"].upsert(views.cached_object(raw))

    def released(self, stream: Any) -> list[str]:
        """Poll twice. Return the states whose memory the node's agent is ordered to release."""
        for _ in range(2):
            self.now += 11
            self.hub.release_memory()
        found = [stream.outbox.get_nowait() for _ in range(stream.outbox.qsize())]
        return sorted({one.drop_job.job_uid for one in found if one.HasField("drop_job")})

    async def test_a_node_proves_its_states_by_a_replica_of_the_same_revision(self) -> None:
        self.holding("n0", OWN, SIBLING, proof=SIBLING)
        self.holding("n1", OWN, proof=OTHER)
        self.holding("n2", OWN, proof=JOB)
        self.holding("n3", OTHER, uid_of(0, job="another-job"), proof=OTHER)
        assert self.hub.reader.states(JOB) == {OWN: ("n0",), SIBLING: ("n0",), OTHER: ("n3",)}

    async def test_states_of_silent_nodes_are_lost(self) -> None:
        self.holding("n0", OWN)
        self.holding("n1", OWN)
        self.now += 60
        self.hub.monitor.record_sign("n1")
        assert self.hub.reader.states(JOB) == {OWN: ("n1",)}

    async def test_states_of_a_deleted_job_are_released(self) -> None:
        stream = self.holding("n0", OWN)
        assert self.released(stream) == [OWN]

    async def test_states_of_a_job_without_tiers_are_released(self) -> None:
        stream = self.holding("n0", OWN)
        self.serve(0)
        assert self.released(stream) == []
        self.serve(0, checkpoint={})
        assert self.released(stream) == [OWN]

    async def test_a_removed_replica_s_state_waits_for_its_successor(self) -> None:
        stream = self.holding("n0", OWN, SIBLING)
        self.serve(1)
        assert self.released(stream) == []
        self.now += SUCCESSOR_SECONDS
        assert self.released(stream) == [OWN]

    async def test_another_revision_releases_the_states_of_the_first(self) -> None:
        stream = self.holding("n0", OWN, SIBLING)
        self.serve(0, 1, revision="r2")
        assert self.released(stream) == [OWN, SIBLING]

    async def test_a_replica_that_left_a_node_keeps_its_state_there_until_it_has_saved_again(self) -> None:
        left = self.holding("n0", OWN)
        self.serve(0)
        labels = {LABEL_JOB: "llm", LABEL_ROLE: "server", LABEL_GROUP: "0", LABEL_INDEX: "0"}
        metadata = {"name": "llm-server-0-0", "namespace": "ns", "uid": "u2", "resourceVersion": "1"}
        pod = {"metadata": {**metadata, "labels": labels}, "spec": {"nodeName": "n1"}}
        self.cache.pods.upsert(views.pod(pod))
        self.holding("n1", OWN)
        record = self.hub.registry.ensure("n1")
        record.slots["u2"] = view = SlotView("u2", "n1", True, incarnation=4)
        assert self.released(left) == []
        saved = CommitView(4, 1000)
        hosts = ReplicaStateView(hosts=("n2",))
        record.slots["u2"] = replace(view, committed={"local": saved}, replica_state=hosts)
        assert self.released(left) == [], "its copy is not complete"
        record.slots["u2"] = replace(view, committed={"local": saved, "peer": saved}, replica_state=hosts)
        assert self.released(left) == [OWN]


def test_the_order_has_a_token_for_the_state_alone() -> None:
    state = ReplicaState(OWN, 7, ("n1",), ("n2", "n3"))
    given = Assign(
        node="n0",
        pod_uid="u",
        job_uid=f"{JOB}.server.0",
        job="ns/llm",
        incarnation=4,
        slot=0,
        rank_offset=0,
        processes=1,
        world_size=1,
        master_addr="",
        master_port=1,
        hang_seconds=1,
        role="server",
        replica=0,
        command=(),
        members=(),
        replica_state=state,
    )
    sent = messages.command(given, lambda node: f"{node}:1", str).assignment
    assert sent.slot_token == str(SlotToken(f"{JOB}.server.0", 4, 0, "n0"))
    assert sent.replica_state.token == str(SlotToken(OWN, 4, 0, "n0"))
    assert [one.peer_address for one in sent.replica_state.hosts] == ["n1:1"]
    assert [one.node for one in sent.replica_state.holders] == ["n2", "n3"]
    without = messages.command(replace(given, replica_state=None), str, str).assignment
    assert not without.HasField("replica_state")


def test_an_agent_understands_the_order() -> None:
    given = Assign(
        "n0",
        "u",
        f"{JOB}.server.0",
        "ns/llm",
        4,
        0,
        0,
        1,
        1,
        "",
        1,
        1,
        "server",
        0,
        (),
        (Member(0, "u", "n0", 1),),
    )
    given = replace(given, replica_state=ReplicaState(OWN, 7, ("n1",), ("n2",)))
    found = assignment.from_wire(messages.command(given, lambda node: f"{node}:1", str).assignment)
    plan = found.of_state()
    assert plan is not None and plan.memory is not None
    assert (plan.job_uid, plan.slot_token) == (OWN, str(SlotToken(OWN, 4, 0, "n0")))
    assert plan.memory.hosts == (NodeAddress("n1", "n1:1"),)


def test_a_saved_state_does_not_queue_its_job_at_once() -> None:
    def view(step: int, **more: Any) -> SlotView:
        saved = [wire.Committed(tier="local", incarnation=4, step=step)]
        return messages.slot_view(report(committed=saved, **more), "n0")

    state = wire.ReplicaStateReport(hosts=["n1"])
    before, after = (messages.skeleton(view(step, replica_state=state)) for step in (1, 2))
    assert before == after
    assert messages.skeleton(view(1)) != messages.skeleton(view(2)), "a TrainingJob's checkpoint does"
    moved = messages.skeleton(view(1, replica_state=wire.ReplicaStateReport(hosts=["n2"])))
    assert before != moved


def test_the_settings_in_a_report_are_bounded() -> None:
    names = [f"n{number}" for number in range(9)]
    found = messages.slot_view(report(replica_state=wire.ReplicaStateReport(hosts=names, limit=2**60)), "n0")
    assert found.replica_state == ReplicaStateView(("n0", "n1", "n2", "n3"), 2**53)
    assert messages.slot_view(report(), "n0").replica_state is None
