"""Tests of generations that a rank could not save. The agent remembers them, reports them to slot 0's
agent, and has their copies on other nodes dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agents.harness import eventually
from tests.unit.agents.test_tiercheck_shard_store import named, noise, pieces, sealed

from convoy_agents.tiercheck.abandoned_generations import MAX_ABANDONED, AbandonedGenerations
from convoy_agents.tiercheck.shard_store import MAX_WITHDRAWN, ShardStore
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Manifest, Record

POD = "aaaa-1111"


class Plan:
    """The parts of an assignment that these tests need."""

    pod_uid = POD


PLAN: Any = Plan()


class Slot0:
    """A fake agent of slot 0. While `answers` is not set, its notifications wait. Then it adds the step of
    each notified generation to `notified`.
    """

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.notified: list[int] = []
        self.answers = asyncio.Event()
        self.abandoned = AbandonedGenerations(self.notify)

    async def notify(self, plan: object, generation: Generation) -> None:
        self.attempts.append(generation.step)
        await self.answers.wait()
        self.notified.append(generation.step)

    def abandon(self, *steps: int) -> None:
        for step in steps:
            self.abandoned.add(PLAN, Generation(1, step))

    def known(self, *steps: int) -> list[bool]:
        return [self.abandoned.holds(POD, Generation(1, step)) for step in steps]


@pytest.fixture
async def slot0() -> AsyncIterator[Slot0]:
    found = Slot0()
    yield found
    await found.abandoned.close()


async def test_each_abandoned_generation_is_notified(slot0: Slot0) -> None:
    slot0.abandon(10, 20)
    slot0.answers.set()
    await eventually(lambda: slot0.notified == [10, 20])
    assert slot0.known(10, 20, 30) == [True, True, False]


async def test_concurrent_reports_of_two_ranks_cause_one_notification(slot0: Slot0) -> None:
    slot0.abandon(10, 10)
    await eventually(lambda: slot0.attempts == [10])
    slot0.answers.set()
    await eventually(lambda: slot0.notified == [10])
    # The first notification may not have reached slot 0's agent, so another report of the same generation
    # must cause another notification.
    slot0.abandon(10)
    await eventually(lambda: slot0.notified == [10, 10])


async def test_the_oldest_abandoned_generations_are_dropped(slot0: Slot0) -> None:
    steps = range(1, MAX_ABANDONED + 3)
    slot0.abandon(*steps)
    slot0.abandon(3)  # Step 3 becomes the newest entry.
    slot0.abandon(99)
    assert slot0.known(1, 2, 3, 4, 99) == [False, False, True, False, True]
    slot0.answers.set()
    await eventually(lambda: sorted(slot0.notified) == [3, *range(5, MAX_ABANDONED + 3), 99])


async def test_a_removed_pod_s_generations_are_dropped(slot0: Slot0) -> None:
    slot0.abandon(10)
    await eventually(lambda: slot0.attempts == [10])
    slot0.abandoned.drop_pod(POD)
    slot0.answers.set()
    await asyncio.sleep(0)
    assert slot0.known(10) == [False] and not slot0.notified


# Withdrawals on the node that owns the shards.


def owner(folder: Path) -> ShardStore:
    store = ShardStore(folder)
    if not store.incarnation:
        store.start_incarnation(1, {})
        store.reserve("0", 2, 3 * 4096)
    return store


def test_a_given_up_shard_is_reported_after_its_drop_and_after_a_restart(tmp_path: Path) -> None:
    store = owner(tmp_path)
    one = sealed(store, "0-0", 10)
    store.give_up([one.id, "of somebody else"])
    assert store.dropped_withdrawn() == []
    store.collect()
    assert store.dropped_withdrawn() == [one.id] and store.writable("0") == ["0-0", "0-1"]
    assert owner(tmp_path).dropped_withdrawn() == [one.id]


def test_a_restart_before_the_drop_undoes_giving_up_a_shard(tmp_path: Path) -> None:
    store = owner(tmp_path)
    one = sealed(store, "0-0", 10)
    store.give_up([one.id])
    again = owner(tmp_path)
    assert one.id in again.manifests and not again.given_up
    again.drop(one.id)
    assert again.dropped_withdrawn() == []


def test_withdrawn_shards_are_bounded_and_end_with_the_incarnation(tmp_path: Path) -> None:
    store, ids = owner(tmp_path), []
    for step in range(1, MAX_WITHDRAWN + 3):
        ids.append(sealed(store, "0-0", step).id)
        store.give_up(ids[-1:])
        store.collect()
    assert store.dropped_withdrawn() == ids[2:]
    store.start_incarnation(1, {})  # Another pod of the job on this node starts in the same incarnation.
    assert store.dropped_withdrawn() == ids[2:]
    store.start_incarnation(2, {})
    assert store.dropped_withdrawn() == []


# Withdrawals on the nodes that hold the copies.


def brought(store: ShardStore, manifest: Manifest, data: bytes, copy_of: str, count: int = 3) -> None:
    for index in store.expect(manifest, copy_of)[:count]:
        store.incoming.put(manifest.id, index, pieces(data)[index])
    if count == 3:
        store.admit(manifest.id)


@pytest.mark.parametrize("count", [1, 3], ids=["on its way", "whole"])
def test_a_copy_released_by_its_owner_frees_memory(tmp_path: Path, count: int) -> None:
    store = ShardStore(tmp_path)
    copy = named(noise(10), 10)
    brought(store, copy, noise(10), "two", count)
    assert store.copies_from("two") == {copy.id} and not store.copies_from("three")
    store.release_copies(store.copies_from("two"))
    store.collect()
    assert store.unbuffered_bytes == 0 and not store.copies_from("two")
    assert not [*(tmp_path / "files").iterdir()]


def test_committed_and_extended_shards_survive_a_release(tmp_path: Path) -> None:
    store = ShardStore(tmp_path)
    base, other = named(noise(10), 10), named(noise(11), 11, "1")
    brought(store, base, noise(10), "two")
    brought(store, other, noise(11), "two")
    store.add_record(Record(base.generation, None, {"0": base.id}))
    store.advance(Tier.LOCAL, base.generation)
    segment = replace(named(noise(12), 12, "1"), extends=other.id)
    brought(store, segment, noise(12), "two")
    store.release_copies([base.id, other.id])
    store.collect()
    assert store.manifests.keys() == {base.id, other.id, segment.id}


def test_an_offer_of_an_existing_shard_does_not_change_its_owner(tmp_path: Path) -> None:
    store = owner(tmp_path)
    mine = sealed(store, "0-0", 10)
    copy = named(noise(11), 11, "1")
    brought(store, copy, noise(11), "two")
    for known in (mine, copy):
        assert store.expect(known, "three") == []
    assert not store.copies_from("three") and store.copies_from("two") == {copy.id}
