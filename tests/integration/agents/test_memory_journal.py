"""Tests of journal segments in the memory of real agents. A segment is committed, copied and restored
together with the full save that it extends.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub
from tests.integration.agents.memory_job import MemoryJob, Rank, damage, held, segment, state, until_held
from tests.integration.agents.test_memory import A, B, C, folder, job, saved

from convoy_controllers.checkpoint.generation import Generation, Tier

__all__ = ["folder", "job"]


async def journalled(ranks: list[Rank], step: int, extends: list[int]) -> None:
    """Let all ranks save a segment after a step. Wait until these segments are committed and copied."""
    for rank in ranks:
        assert (await rank.journal(step, extends))["type"] == "sealed"
    for rank in ranks:
        await rank.stands(Tier.LOCAL, extends[0], step)
        await rank.stands(Tier.PEER, extends[0], step)


def chain(shard: int, *steps: int) -> list[bytes]:
    """Return the bytes of a shard's full save at the first step, and of its segments at the other steps."""
    base, *later = steps
    return [state(base, shard), *(segment(step, shard) for step in later)]


async def test_a_lost_node_is_restored_with_its_base_and_later_segments(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    for rank in ranks:
        assert (await rank.reserve_segments(3))["type"] == "buffers"
    await saved(ranks, 1, 10)
    await journalled(ranks, 11, [1, 10])
    await journalled(ranks, 12, [1, 11])
    whole = {(Generation(1, step), shard) for step in (10, 11, 12) for shard in ("0", "1")}
    assert await held(one) == await held(two) == whole, "a segment keeps what it follows"
    await two.stop()
    again = await job.form(2, [(A, one), (C, three)])
    for rank in again:
        answer = await rank.restore()
        assert answer["generation"] == [1, 12]
        for shard in (0, 1):
            assert await rank.read_chain(str(shard)) == chain(shard, 10, 11, 12)
    for rank in again:
        await rank.request(type="restored")
    for host in (one, three):
        await until_held(host, whole)
    for rank in again:
        await rank.reserve()
    await saved(again, 2, 13)
    assert {generation for generation, _ in await held(three)} == {Generation(2, 13)}, (
        "all of it goes at once"
    )


async def test_the_next_full_save_frees_the_segments(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    for rank in ranks:
        await rank.reserve_segments(2)
    for base in (10, 20, 30):
        await saved(ranks, 1, base)
        assert {generation for generation, _ in await held(one)} == {Generation(1, base)}
        await journalled(ranks, base + 1, [1, base])
        await journalled(ranks, base + 2, [1, base + 1])
        stand = await ranks[0].until(lambda stand: True)
        assert not stand["segments"], "both are needed"
    await saved(ranks, 1, 40)
    stand = await ranks[0].until(lambda stand: len(stand["segments"]) == 2)
    assert stand["buffer"]


async def test_ranks_that_cannot_replay_get_the_full_save(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    for rank in ranks:
        await rank.reserve_segments(2)
    await saved(ranks, 1, 10)
    await journalled(ranks, 11, [1, 10])
    again = await job.form(2, [(A, one), (B, two)])
    for rank in again:
        assert (await rank.restore())["generation"] == [1, 11]
    for rank in again:
        assert (await rank.restore(1, bases=True))["generation"] == [1, 10]
    for rank in again:
        for shard in (0, 1):
            assert await rank.read_chain(str(shard)) == chain(shard, 10)
        await rank.request(type="restored")
    for rank in again:
        await rank.reserve()
    await saved(again, 2, 11)


async def test_a_damaged_base_is_fetched_from_the_peer_and_the_segment_is_local(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    for rank in ranks:
        await rank.reserve_segments(2)
    await saved(ranks, 1, 10)
    await journalled(ranks, 11, [1, 10])
    await damage(one, "0", Generation(1, 10))
    again = await job.form(2, [(A, one), (B, two)])
    for rank in again:
        assert (await rank.restore())["generation"] == [1, 11]
    assert await again[0].read_chain("0") == chain(0, 10, 11)


@pytest.mark.parametrize(
    "changes",
    [
        {"extends": [1, 9]},  # this step was never saved
        {"extends": [2, 10]},
        {"extends": [1, 11]},  # the segment would follow itself
        {"buffer": "0-1"},  # this buffer is for full saves
        {"extends": None},  # this buffer is for segments
    ],
)
async def test_a_segment_must_extend_a_save_in_the_rank_s_own_buffers(
    make_host: HostMaker, hub: FakeHub, folder: Path, changes: dict[str, object]
) -> None:
    job = MemoryJob(hub, folder, copies=0)
    (rank,) = await job.start_incarnation(1, [(A, await make_host("one"))])
    await rank.reserve_segments(1)
    assert (await rank.save(10))["type"] == "sealed"
    good = {"buffer": "0-j0", "step": 11, "length": 4096, "world": 1, "torch": "2.13", "plan": "same"}
    answer = await rank.request(type="seal", **{**good, "extends": [1, 10], **changes})
    assert answer["type"] == "failed"
    assert (await rank.request(type="seal", **good, extends=[1, 10]))["type"] == "sealed"


async def test_a_journal_over_the_limit_is_refused_and_full_saves_continue(
    make_host: HostMaker, hub: FakeHub, folder: Path
) -> None:
    job = MemoryJob(hub, folder, copies=0, limit=40 * 2**20)
    one = await make_host("one")
    (rank,) = await job.start_incarnation(1, [(A, one)])
    refused = await rank.reserve_segments(4, 2**30)
    assert refused["type"] == "refused" and refused["missing"] > 0
    session = one.agent.pods.get(A)
    assert session is not None and not session.state.troubles
    assert (await rank.save(10))["type"] == "sealed"


async def test_an_inexact_journal_is_reported(make_host: HostMaker, hub: FakeHub, folder: Path) -> None:
    job = MemoryJob(hub, folder, copies=0)
    (rank,) = await job.start_incarnation(1, [(A, await make_host("one"))])
    assert (await rank.request(type="inexact", what="two.weight"))["type"] == "noted"
    assert await hub.trouble(A, "INEXACT") == "rank 0: two.weight"
