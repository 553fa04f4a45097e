"""Tests of the addresses that replicas with peers get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.controllers.servingjob.servers import Servers, make_engine

from convoy_controllers.resources import CONTROLLER_REVISIONS
from convoy_controllers.servingjob import peers
from convoy_crds.terms import LABEL_GROUP


def servers(count: int = 3, *, peered: bool = True) -> Servers:
    """Return a job whose Engine's replicas talk to each other."""
    it = Servers(replicas=count, recovery={"maxRestarts": 3})
    it.engines["lm"] = make_engine(replicaPeers=peered)
    return it.settle()


def known(it: Servers) -> dict[str, tuple[str, ...]]:
    """Return the numbers of the replicas whose addresses each live pod has, by name of the pod."""
    numbers = {f"{pod.ip}:8080": pod.labels[LABEL_GROUP] for pod in it.pods.values()}
    return {
        name: tuple(numbers.get(one, one) for one in it.slots[pod.uid].endpoints)
        for name, pod in sorted(it.pods.items())
    }


@pytest.mark.parametrize(
    ("own", "reachable", "most", "expected"),
    [
        ("b", [], 9, ("b",)),
        ("b", ["b"], 9, ("b",)),
        ("b", ["a", "b", "c", "d"], 9, ("b", "c", "d", "a")),
        ("d", ["a", "b", "c"], 9, ("d", "a", "b", "c")),
        ("b", ["a", "b", "c", "d"], 2, ("b", "c")),
        ("d", ["a", "b", "c", "d"], 2, ("d", "a")),
        ("b", ["c", "c"], 9, ("b", "c")),
    ],
)
def test_a_replica_gets_its_own_address_and_then_those_behind_it(
    own: str, reachable: list[str], most: int, expected: tuple[str, ...]
) -> None:
    assert peers.addresses(own, reachable, most) == expected


@pytest.mark.parametrize("count", [2, 3, 65, 200])
def test_all_replicas_stay_connected_whatever_their_number(count: int) -> None:
    every = [f"10.0.{number // 250}.{number % 250}:80" for number in range(count)]
    reached, todo = {every[0]}, [every[0]]
    while todo:
        for one in peers.addresses(todo.pop(), every):
            if one not in reached:
                reached.add(one)
                todo.append(one)
    assert reached == set(every)


def test_each_replica_learns_of_the_others_and_then_nothing_is_sent() -> None:
    it = servers()
    assert known(it) == {
        "llm-worker-0-0": ("0", "1", "2"),
        "llm-worker-1-0": ("1", "2", "0"),
        "llm-worker-2-0": ("2", "0", "1"),
    }
    assert not it.step().commands


def test_an_engine_without_peers_gets_no_address() -> None:
    assert set(known(servers(peered=False)).values()) == {()}


def test_a_replica_that_is_alone_gets_its_own_address() -> None:
    assert known(servers(1)) == {"llm-worker-0-0": ("0",)}


def test_a_replica_is_known_before_it_is_ready() -> None:
    it = servers(2)
    it.good = lambda pod: pod.labels[LABEL_GROUP] != "2"
    it.edit(replicas=3).settle()
    assert not it.pods["llm-worker-2-0"].ready
    assert known(it)["llm-worker-0-0"] == ("0", "1", "2") and known(it)["llm-worker-2-0"] == ("2", "0", "1")


def test_a_replica_is_unknown_before_its_ranks_are_assigned() -> None:
    it = servers(2)
    it.edit(replicas=3).step()
    fresh = it.pods["llm-worker-2-0"]
    it.slots[fresh.uid] = replace(it.slots[fresh.uid], launcher_connected=False)
    it.run(3)
    assert fresh.ip and known(it)["llm-worker-0-0"] == ("0", "1")
    it.slots[fresh.uid] = replace(it.slots[fresh.uid], launcher_connected=True)
    assert known(it.settle())["llm-worker-0-0"] == ("0", "1", "2")


def test_an_agent_that_lost_the_addresses_gets_them_again() -> None:
    it = servers(2)
    before = known(it)
    uid = it.pods["llm-worker-0-0"].uid
    it.slots[uid] = replace(it.slots[uid], endpoints=())
    assert len(it.step().commands) == 1 and known(it) == before


def drain(it: Servers) -> None:
    """Scale to 2 replicas. Replica 2 drains and does not end yet."""
    it.drains = False
    it.edit(replicas=2)


def evict(it: Servers) -> None:
    """Delete the pod of replica 2, which drains and does not end yet."""
    it.drains = False
    it.pod("llm-worker-2-0", deleting=True, ready=False)


def lose(it: Servers) -> None:
    """Lose the node of replica 2."""
    node = it.pods["llm-worker-2-0"].node
    assert node is not None
    it.silence(node, 12)


@pytest.mark.parametrize("end", [drain, evict, lose])
def test_no_replica_relies_on_one_that_ends(end: Callable[[Servers], None]) -> None:
    it = servers()
    end(it)
    it.run(3, 1)
    assert known(it)["llm-worker-0-0"][:2] == ("0", "1") and "2" not in known(it)["llm-worker-0-0"]


@pytest.mark.parametrize("end", [drain, evict])
def test_a_replica_that_drains_knows_the_others(end: Callable[[Servers], None]) -> None:
    it = servers()
    end(it)
    it.run(3, 1)
    assert known(it)["llm-worker-2-0"][:3] == ("2", "0", "1")


def test_a_restart_in_place_changes_nothing_but_a_back_off_does() -> None:
    it = servers(2)
    uid = it.pods["llm-worker-1-0"].uid
    it.exit("llm-worker-1-0")
    for _ in range(10):
        it.step()
        assert known(it)["llm-worker-0-0"] == ("0", "1")
        it.wait(1)
    assert it.pods["llm-worker-1-0"].uid == uid and known(it)["llm-worker-1-0"] == ("1", "0")
    seen = set()
    it.good = lambda pod: pod.labels[LABEL_GROUP] == "0"
    for _ in range(3):
        it.exit("llm-worker-1-0")
        for _ in range(6):
            it.step()
            seen.add(known(it)["llm-worker-0-0"])
            it.wait(1)
    assert seen == {("0", "1"), ("0",)}


def test_the_replicas_of_two_revisions_are_peers_each_at_its_own_port() -> None:
    it = servers(1)
    old = it.pods["llm-worker-0-0"]
    it.good = lambda pod: pod.uid == old.uid
    it.edit(service={"port": 9000}).settle()
    [fresh] = [pod for pod in it.pods.values() if pod.uid != old.uid]
    assert it.slots[old.uid].endpoints == (f"{old.ip}:8080", f"{fresh.ip}:9000")
    assert it.slots[fresh.uid].endpoints == (f"{fresh.ip}:9000", f"{old.ip}:8080")


def test_only_rank_0_of_a_replica_gets_addresses() -> None:
    it = Servers(roles=[{"name": "worker", "engine": {"name": "lm"}, "groupSize": 2}], replicas=2)
    it.engines["lm"] = make_engine(replicaPeers=True)
    it.settle()
    assert {name: len(found) for name, found in known(it).items()} == {
        "llm-worker-0-0": 2,
        "llm-worker-0-1": 0,
        "llm-worker-1-0": 2,
        "llm-worker-1-1": 0,
    }


def test_an_upgrade_that_adds_the_field_rolls_nothing() -> None:
    it = servers(2, peered=False)
    before = {pod.uid for pod in it.pods.values()}
    for (kind, _), body in it.objects.items():
        for role in body["data"]["roles"] if kind == CONTROLLER_REVISIONS else ():
            del role["replicaPeers"]
    it.run(3)
    assert {pod.uid for pod in it.pods.values()} == before
