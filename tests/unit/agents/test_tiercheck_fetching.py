"""Tests of the order in which an agent fetches a shard from several nodes, and of its retries."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from convoy_agents.pods.assignment import NodeAddress
from convoy_agents.tiercheck import restoring
from convoy_agents.tiercheck.deciding import RestoreFailed
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.peer_transfer import Denied, Unreachable
from convoy_agents.tiercheck.pod_restore import PodRestore
from convoy_agents.tiercheck.restoring import Restores, ShardSources
from convoy_agents.tiercheck.shard_uses import ShardUses

PLAN: Any = SimpleNamespace(job="job", job_uid="uid", slot=0, memory_limit=0, ranks=())
GIVES = None


class Peers:
    """Fake clients of other nodes. `answers`: for each node, the errors of its calls in order, where None
    is a success. Later calls have the result of the last one.
    """

    def __init__(self, **answers: list[Exception | None]) -> None:
        self.answers = answers
        self.requested: list[str] = []

    async def fetch(self, place: NodeAddress, job_memory: object, plan: object, key: str) -> None:
        self.requested.append(place.node)
        left = self.answers[place.node]
        if error := left.pop(0) if len(left) > 1 else left[0]:
            raise error


class Memory:
    def __init__(self) -> None:
        self.uses = ShardUses()

    async def verified_path(self, key: str) -> None:
        return None


async def fetched(peers: Peers) -> tuple[list[tuple[str, str]], set[str]]:
    """Fetch the shard `key`. Return the pairs (node, shard id) that could not be read, and the ids of the
    fetched shards.
    """
    memory_manager: Any = SimpleNamespace(open=lambda uid: Memory())
    surveys: Any = SimpleNamespace(current_plan=lambda plan: plan)
    nobody: Any = None
    sources = ShardSources(cast(Any, peers), nobody)
    restores = Restores("own", memory_manager, surveys, sources, nobody, nobody)
    reading = PodRestore(PLAN, 0, nobody, set())
    places = [NodeAddress(node, f"{node}:1") for node in peers.answers]
    broken = await restores.fetch(reading, "key", places)
    return broken, reading.fetched


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set all waits to zero, so that a node that fails is tried only once."""
    monkeypatch.setattr(restoring, "FETCH_SECONDS", 0.0)
    monkeypatch.setattr(restoring.Backoff, "next", lambda self: 0.0)


@pytest.mark.parametrize(
    ("answers", "requested", "broken"),
    [
        ({"a": [GIVES], "b": [GIVES]}, ["a"], []),
        ({"a": [Damaged("bits")], "b": [GIVES]}, ["a", "b"], ["a"]),
        ({"a": [Unreachable("away")], "b": [GIVES]}, ["a", "b"], ["a"]),
        ({"a": [Denied("no slot")], "b": [GIVES]}, ["a", "b"], []),
        ({"a": [Denied("no slot")], "b": [Damaged("bits")], "c": [GIVES]}, ["a", "b", "c"], ["b"]),
        ({"a": [Damaged("bits")], "b": [Unreachable("away")]}, ["a", "b"], ["a", "b"]),
    ],
)
async def test_sources_are_tried_in_order(
    answers: dict[str, list[Exception | None]], requested: list[str], broken: list[str]
) -> None:
    peers = Peers(**answers)
    found, came = await fetched(peers)
    assert peers.requested == requested and [node for node, _ in found] == broken
    assert bool(came) == (GIVES in answers[requested[-1]])


async def test_a_source_that_denies_is_retried_last_and_not_marked_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restoring, "FETCH_SECONDS", 60.0)
    peers = Peers(a=[Denied("who signs?"), Denied("who signs?"), GIVES], b=[Damaged("bits")])
    found, came = await fetched(peers)
    assert peers.requested == ["a", "b", "a", "a"]
    assert found == [("b", "key")] and came == {"key"}


async def test_a_denial_is_the_error_if_no_other_source_is_left() -> None:
    peers = Peers(a=[Denied("no slot")], b=[Damaged("bits")])
    with pytest.raises(RestoreFailed, match="no slot"):
        await fetched(peers)


class TestPodRestore:
    """The fetches of one pod's restore, which its ranks share."""

    def restore(self) -> PodRestore:
        nobody: Any = None
        return PodRestore(PLAN, 0, nobody, set())

    async def test_ranks_share_one_fetch_of_a_shard(self) -> None:
        calls, go = [], asyncio.Event()

        async def fetch() -> list[tuple[str, str]]:
            calls.append(1)
            await go.wait()
            return [("a", "key")]

        own = self.restore()
        own.start("key", fetch)
        own.start("key", fetch)
        waiting = [asyncio.create_task(own.result("key")) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()  # A rank that disconnects ends only its own wait.
        go.set()
        assert await asyncio.gather(*waiting[1:]) == [[("a", "key")]] * 2
        assert waiting[0].cancelled() and calls == [1]

    async def test_every_rank_gets_the_error_of_the_fetch(self) -> None:
        async def fetch() -> list[tuple[str, str]]:
            raise RestoreFailed("no memory", memory=True)

        own = self.restore()
        own.start("key", fetch)
        for _ in range(2):
            with pytest.raises(RestoreFailed, match="no memory"):
                await own.result("key")

    async def test_a_restore_that_ends_ends_its_fetches(self) -> None:
        async def fetch() -> list[tuple[str, str]]:
            await asyncio.Event().wait()
            return []

        own = self.restore()
        own.start("key", fetch)
        waiting = asyncio.create_task(own.result("key"))
        await asyncio.sleep(0)
        own.cancel()
        with pytest.raises(RestoreFailed, match="ended"):
            await waiting

    async def test_a_failed_fetch_starts_again_for_a_rank_that_asks_later(self) -> None:
        calls: list[int] = []

        async def fetch() -> list[tuple[str, str]]:
            calls.append(1)
            if len(calls) == 1:
                raise RestoreFailed("the store does not answer", store=True)
            return []

        own = self.restore()
        for wanted in (RestoreFailed, None, None):
            own.start("key", fetch)
            if wanted:
                with pytest.raises(wanted):
                    await own.result("key")
            else:
                assert await own.result("key") == []
        assert calls == [1, 1]

    async def test_an_ended_restore_starts_no_fetch(self) -> None:
        async def fetch() -> list[tuple[str, str]]:
            raise AssertionError("a fetch")

        own = self.restore()
        own.cancel()
        with pytest.raises(RestoreFailed, match="has ended"):
            own.start("key", fetch)
