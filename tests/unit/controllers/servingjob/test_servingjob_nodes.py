"""Tests of replicas on nodes that are quarantined, drained or cordoned."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controllers.servingjob.servers import NODES, Servers

from convoy_controllers.cached import Node
from convoy_controllers.resources import NODES as NODE_OBJECTS
from convoy_controllers.resources import POD_DISRUPTION_BUDGETS
from convoy_controllers.servingjob.controller import CONTROLLER
from convoy_controllers.servingjob.moving import OUT_OF_SERVICE, tolerates
from convoy_crds.nodehealth import State


def node_of(servers: Servers, number: int = 0) -> str:
    return servers.pods[f"llm-worker-{number}-0"].node or ""


def ready(servers: Servers) -> int:
    return sum(pod.ready and not pod.deleting for pod in servers.pods.values())


@pytest.mark.parametrize(
    ("state", "replicas"),
    [*((state, 2) for state in sorted(OUT_OF_SERVICE)), (State.QUARANTINED, 1), (State.QUARANTINED, 3)],
)
def test_replicas_leave_an_unhealthy_node_without_a_gap(state: str, replicas: int) -> None:
    servers = Servers(replicas=replicas).settle()
    bad = node_of(servers)
    servers.quarantine(bad, state=state)
    for _ in range(20):
        servers.step()
        servers.wait(2)
        assert ready(servers) >= replicas, "the rollout's budget allows no missing replica"
    servers.settle()
    assert bad not in {pod.node for pod in servers.pods.values()}
    assert servers.job.status.ready == f"{replicas}/{replicas}"
    assert servers.message("Degraded") == "no replica is faulty"


@pytest.mark.parametrize("state", ["", State.UNVERIFIED, State.SUSPECT, State.PROBATION, State.EXEMPT])
def test_replicas_stay_on_a_node_in_service(state: str) -> None:
    servers = Servers(replicas=2).settle()
    before = set(servers.pods)
    servers.quarantine(node_of(servers), state=state).run(5)
    assert set(servers.pods) == before


def test_a_degraded_condition_names_the_replica_and_the_node() -> None:
    servers = Servers(replicas=1).settle()
    bad = node_of(servers)
    servers.quarantine(bad).step()
    text = servers.message("Degraded")
    assert "replica worker-0 leaves node" in text and f"convoy guard why {bad}" in text


def test_the_last_replica_stays_if_every_node_is_bad() -> None:
    servers = Servers(replicas=1, rollout={"maxUnavailable": 1}).settle()
    first = set(servers.pods)
    servers.quarantine(*(f"node-{number}" for number in range(NODES))).run(60)
    assert first <= set(servers.pods) and ready(servers) == 1
    # The limit stays, so that nothing evicts the only replica from a node that is merely suspected.
    budget = servers.objects[POD_DISRUPTION_BUDGETS, "llm-worker"]
    assert budget["spec"]["minAvailable"] == 1


def test_two_nodes_of_two_replicas_are_left_one_after_the_other() -> None:
    servers = Servers(replicas=2, rollout={"maxSurge": 1}).settle()
    bad = {node_of(servers, 0), node_of(servers, 1)}
    servers.quarantine(*bad)
    for _ in range(40):
        servers.step()
        servers.wait(2)
        assert ready(servers) >= 2 and len(servers.pods) <= 3
    assert not bad & {pod.node for pod in servers.settle().pods.values()}


def test_a_failed_replica_does_not_block_the_drain_of_another_ones_node() -> None:
    servers = Servers(replicas=3, recovery={"maxRestarts": 0}).settle()
    servers.exit("llm-worker-0-0").run(3)
    assert servers.condition["Degraded"] == ("True", "ReplicaFailed")
    servers.cordon(node_of(servers, 1))
    servers.run(8)
    least = servers.objects[POD_DISRUPTION_BUDGETS, "llm-worker"]["spec"]["minAvailable"]
    assert ready(servers) == 3 > least, "a surge makes the eviction possible"


def test_replicas_leave_while_a_rollout_is_paused() -> None:
    servers = Servers(replicas=2).settle()
    servers.rollout(paused=True)
    servers.size(2).run(3)
    bad = node_of(servers)
    servers.quarantine(bad).run(30)
    assert bad not in {pod.node for pod in servers.pods.values()} and ready(servers) == 2


TOLERANT = [{"key": "convoy.dev/quarantined", "operator": "Exists"}]


@pytest.mark.parametrize("pod", [{"tolerations": TOLERANT}, {"nodeName": "node-0"}])
def test_a_replica_that_would_return_to_the_node_stays(pod: dict[str, Any]) -> None:
    role = {"name": "worker", "engine": {"name": "lm"}, "template": {"spec": pod}}
    servers = Servers(replicas=2, roles=[role]).settle()
    before = set(servers.pods)
    servers.quarantine(node_of(servers)).run(5)
    assert set(servers.pods) == before


def test_a_replacement_avoids_the_bad_node_even_without_its_taint() -> None:
    servers = Servers(replicas=1).settle()
    bad = node_of(servers)
    servers.quarantine(bad).step()
    affinity = servers.manifests["llm-worker-1-0"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchFields"][0]["values"] == [bad]


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], False),
        ([{"operator": "Exists"}], True),
        ([{"operator": "Exists", "effect": "NoExecute"}], False),
        ([{"key": "a", "operator": "Exists"}, {"key": "t", "effect": "NoSchedule"}], True),
        ([{"key": ""}], False),
    ],
)
def test_tolerations_are_read_as_the_scheduler_does(
    tolerations: list[dict[str, str]], expected: bool
) -> None:
    assert tolerates(tolerations, "t") is expected


def test_a_change_of_a_nodes_health_queues_the_jobs_on_it() -> None:
    (watch,) = (one for one in CONTROLLER.watches if one.resource == NODE_OBJECTS)
    healthy = Node("n", "u", 1, True)
    bad = Node("n", "u", 2, True, labels={"convoy.dev/node-health": "Quarantined"})
    assert watch.concern(healthy) != watch.concern(bad)
