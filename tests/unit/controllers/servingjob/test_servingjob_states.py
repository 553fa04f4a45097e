"""Tests of the states that replicas save: where they are, who may read them, what the status says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.controllers.servingjob.servers import Servers, make_server

from convoy_controllers.checkpoint.replica_state import parse, state_uid
from convoy_controllers.commands import ReplicaState
from convoy_controllers.views import CommitView, NodeView

ZONE = "topology.kubernetes.io/zone"
TIERS = {"tiers": {"local": {"memory": "1Gi"}, "peer": {"copies": 1}}}


def servers(replicas: int = 3, **spec: Any) -> Servers:
    return Servers(replicas=replicas, checkpoint=TIERS, **spec).settle()


def states(found: Servers) -> dict[str, ReplicaState]:
    """Return the newest settings of each replica's state, by name of slot 0's pod."""
    names = {pod.uid: pod.name for pod in found.pods.values()}
    return {
        names[one.pod_uid]: one.replica_state
        for one in found.assigned
        if one.replica_state is not None and one.pod_uid in names
    }


def save(found: Servers, pod: str, seconds: float, *tiers: str) -> None:
    """Let the agent of a pod report a saved state."""
    uid = found.pods[pod].uid
    view = found.slots[uid]
    saved = CommitView(view.incarnation, int(1000 * (found.now.timestamp() + seconds)))
    found.slots[uid] = replace(view, committed={**view.committed, **dict.fromkeys(tiers, saved)})


def test_without_tiers_no_state_is_saved() -> None:
    found = Servers(replicas=2).settle()
    assert found.assigned and states(found) == {}
    assert found.job.status.checkpoint is None and "Checkpointing" not in found.condition


def test_one_pod_of_each_replica_saves_under_a_uid_of_its_own() -> None:
    found = servers(roles=[{"name": "worker", "groupSize": 2, "engine": {"name": "lm"}}])
    assert {one.slot for one in found.assigned if one.replica_state is not None} == {0}
    wanted = {state_uid("uid-llm", "worker", record.revision, record.number).text for record in found.records}
    assert {one.uid for one in states(found).values()} == wanted and len(wanted) == 3
    assert all(one.limit == 2**30 for one in states(found).values())


def test_copies_go_to_other_nodes_with_replicas_of_the_same_revision() -> None:
    found = servers()
    places = {one.node or "": states(found)[one.name].hosts for one in found.pods.values()}
    assert sorted(places) == ["node-0", "node-1", "node-2"]
    assert sorted(host for hosts in places.values() for host in hosts) == sorted(places)
    assert all(hosts and node not in hosts for node, hosts in places.items())
    families = {parse(one.uid)[1] for one in states(found).values()}  # type: ignore[index]
    found.size(7).settle()
    again = {parse(one.uid)[1] for one in states(found).values()}  # type: ignore[index]
    assert len(families) == len(again) == 1 and families != again, "another revision, other states"


def test_a_host_in_another_zone_is_preferred() -> None:
    found = Servers(replicas=4, checkpoint=TIERS)
    zones = {"node-0": "a", "node-1": "a", "node-2": "b", "node-3": "b"}
    found.nodes = {name: NodeView(name, labels={ZONE: zone}) for name, zone in zones.items()}
    found.settle()
    for pod in found.pods.values():
        [host] = states(found)[pod.name].hosts
        assert zones[host] != zones[pod.node or ""]


def test_a_lost_host_is_replaced_without_a_restart() -> None:
    found = servers()
    name, pod = next((name, pod) for name, pod in found.pods.items() if pod.node == "node-0")
    incarnation, hosts = found.record(int(name.split("-")[2])).incarnation, states(found)[name].hosts
    found.silence(hosts[0], 60).run(20)
    assert states(found)[name].hosts and states(found)[name].hosts != hosts
    assert found.slots[pod.uid].incarnation == incarnation


def test_a_starting_replica_knows_the_nodes_with_readable_states() -> None:
    found = Servers(replicas=1, checkpoint=TIERS)
    found.step()
    revision = found.records[0].revision
    own, sibling = (state_uid("uid-llm", "worker", revision, number).text for number in (0, 5))
    other = state_uid("uid-llm", "worker", "another", 0).text
    found.states = {sibling: ("node-2", "node-1"), other: ("node-3",), own: ("node-0", "node-1")}
    found.settle()
    assert states(found)["llm-worker-0-0"].holders == ("node-1", "node-2")


def test_the_status_counts_saved_states_and_copies() -> None:
    found = servers()
    assert found.condition["Checkpointing"] == ("False", "NoStateSaved")
    first, second, _ = sorted(found.pods)
    save(found, first, -100, "local", "peer")
    save(found, second, -40, "local", "peer")
    save(found, second, 0, "local")
    found.step()
    assert found.condition["Checkpointing"] == ("True", "StatesSaved")
    status = found.job.status.checkpoint
    assert status is not None and status.oldest is not None
    assert (status.replicas, status.copied) == (2, 1)
    before = status.oldest
    save(found, first, -90, "local", "peer")
    found.step()
    status = found.job.status.checkpoint
    assert status is not None and status.oldest == before, "the time advances by minutes"


@pytest.mark.parametrize(
    ("trouble", "reason"), [("NO_MEMORY", "NoStateMemory"), ("NOT_COPIED", "StateNotCopied")]
)
def test_a_trouble_of_an_agent_is_a_reason(trouble: str, reason: str) -> None:
    found = servers()
    name = sorted(found.pods)[1]
    uid = found.pods[name].uid
    found.slots[uid] = replace(found.slots[uid], troubles=((trouble, "5 more bytes are needed"),))
    found.step()
    assert found.condition["Checkpointing"] == ("False", reason) and reason in found.events
    message = found.message("Checkpointing")
    assert "replica worker-1" in message and "5 more bytes are needed" in message
    assert found.condition["Available"][0] == "True"


def test_a_single_replica_has_no_copies() -> None:
    found = servers(replicas=1)
    save(found, "llm-worker-0-0", 0, "local")
    found.step()
    assert found.condition["Checkpointing"] == ("False", "StatesOnOneNode")
    found.edit(checkpoint={"tiers": {"local": {}}}).settle()
    assert states(found)["llm-worker-0-0"] == replace(states(found)["llm-worker-0-0"], limit=0, hosts=())


def test_tiers_may_change_while_replicas_run() -> None:
    found = servers()
    revision, count = found.job.status.update_revision, len(found.plans)
    found.edit(checkpoint={}).settle()
    assert found.job.status.update_revision == revision and len(found.plans) > count
    assert all(view.replica_state is None for view in found.slots.values())
    assert found.job.status.checkpoint is None and "Checkpointing" not in found.condition


def test_a_limit_beyond_any_node_is_bounded() -> None:
    found = servers(replicas=1).edit(checkpoint={"tiers": {"local": {"memory": "99999999999999999Ti"}}})
    found.settle()
    assert states(found)["llm-worker-0-0"].limit == 2**53


def test_a_suspended_job_has_no_states() -> None:
    found = servers().edit(suspend=True).settle()
    assert found.job.status.checkpoint is None and "Checkpointing" not in found.condition


@pytest.mark.parametrize("tiers", [{"remote": {"store": "s3"}}, {"peer": {"copies": 9}}])
def test_states_are_in_memory_only(tiers: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make_server(checkpoint={"tiers": {"local": {}, **tiers}})
