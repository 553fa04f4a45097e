"""Tests of jobs that have memory for checkpoints by default, on real agents. They get at most half of a
node's memory, and give way to jobs that have tiers in their spec.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, eventually
from tests.integration.agents.memory_job import JOB, SIZE, MemoryJob, Rank, held, saved, state

from convoy_agents.tiercheck import memory
from convoy_controllers.checkpoint.generation import Tier

A, B, C, D = "aaaa-1111", "bbbb-2222", "cccc-3333", "dddd-4444"
MIB = 2**20
NODE = 64 * MIB
LARGE = 20 * MIB
"""Bytes of a buffer of the other job. Two of them fit on a node only if the job by default gives way."""
TOO_LARGE = 40 * MIB


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        yield Path(name)


@pytest.fixture
def job(hub: FakeHub, folder: Path) -> MemoryJob:
    return MemoryJob(hub, folder, copies=0, by_default=True)


@pytest.fixture
def other(hub: FakeHub, folder: Path) -> MemoryJob:
    return MemoryJob(hub, folder, copies=0, name="other")


async def small(make_host: HostMaker, name: str) -> Host:
    host = await make_host(name)
    host.agent.memory_manager.budget.limit = NODE
    return host


async def started(other: MemoryJob, host: Host, uid: str = C) -> Rank:
    (rank,) = await other.form(1, [(uid, host)])
    await rank.restore()
    await rank.request(type="restored")
    return rank


def used(host: Host) -> int:
    """Return the bytes in the tmpfs of the job by default."""
    return memory.used_bytes(host.agent.settings.run_dir / "memory" / JOB)


async def test_a_job_gets_at_most_half_of_the_node(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one = await small(make_host, "one")
    ranks = await job.form(1, [(A, one)])
    await ranks[0].restore()
    report = await hub.report(A, lambda report: report.memory.opened)
    assert (report.memory.wanted_bytes, report.memory.limit_bytes) == (0, NODE // 2)
    refused = await ranks[0].reserve(NODE // 4)
    assert refused["type"] == "refused" and "the limit without spec.checkpoint.tiers" in refused["why"]
    report = await hub.report(A, lambda report: report.memory.wanted_bytes > 0)
    assert report.memory.wanted_bytes == NODE // 2, "what it needs is reported although it gets nothing"
    assert (await ranks[0].reserve(NODE // 8))["type"] == "buffers"


async def test_the_maximum_of_the_chart_counts_too(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one = await small(make_host, "one")
    job.limit = 20 * MIB
    ranks = await job.form(1, [(A, one)])
    await ranks[0].restore()
    report = await hub.report(A, lambda report: report.memory.opened)
    assert report.memory.limit_bytes == 20 * MIB
    assert (await ranks[0].reserve())["type"] == "refused"


async def test_a_job_gives_way_and_saves_again_later(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, other: MemoryJob
) -> None:
    one = await small(make_host, "one")
    ranks = await job.start_incarnation(1, [(A, one)])
    await saved(ranks, 1, 10, Tier.LOCAL)
    asking = await started(other, one)

    assert (await asking.reserve(LARGE))["type"] == "buffers", "the first request gets its memory"
    assert await held(one) == set() and used(one) < MIB
    assert (await ranks[0].until(lambda stand: stand["releases"] == 1))["buffer"] == ""
    await ranks[0].until(lambda stand: True)
    assert "a job that has tiers in its spec" in await hub.trouble(A, "YIELDED")
    assert one.agent.memory_manager.budget.shares["uid-of-other"] > 2 * LARGE

    # The rank still has its old buffers mapped. A write must not kill it, and nothing of it may be committed.
    for name, area in ranks[0].buffers.items():
        area[:SIZE] = state(11, 0)
        sealed = await ranks[0].request(
            type="seal", buffer=name, step=11, length=SIZE, world=2, torch="2.13", plan="same"
        )
        assert sealed["type"] == "failed"
        area.close()
    assert (await ranks[0].reserve())["type"] == "refused", "the other job keeps its memory"
    assert (await asking.save(5))["type"] == "sealed"
    await asking.stands(Tier.LOCAL, 1, 5)

    mark = len(hub.messages)
    hub.send("one", drop_job={"job_uid": "uid-of-other"})
    await eventually(lambda: "uid-of-other" not in one.agent.memory_manager.budget.shares)
    assert (await ranks[0].reserve())["type"] == "buffers"
    await saved(ranks, 1, 20, Tier.LOCAL)
    await hub.untroubled(A, mark)


async def test_lost_copies_do_not_restart_the_job(
    make_host: HostMaker, hub: FakeHub, folder: Path, other: MemoryJob
) -> None:
    one, two = await small(make_host, "one"), await small(make_host, "two")
    job = MemoryJob(hub, folder, copies=1, by_default=True)
    for host in (one, two):
        host.agent.memory_manager.budget.limit = 2 * NODE
    members = [(A, one), (B, two)]
    ranks = await job.start_incarnation(1, members)
    await saved(ranks, 1, 10, Tier.LOCAL, Tier.PEER)
    two.agent.memory_manager.budget.limit = NODE
    asking = await started(other, two)
    assert (await asking.reserve(LARGE))["type"] == "buffers"
    assert await held(two) == set()
    two.agent.memory_manager.budget.limit = 2 * NODE
    # Node one has its own shard and the copy of the other, so a new incarnation resumes from them.
    again = await job.form(2, members)
    found = [await rank.restore() for rank in again]
    assert [one["generation"] for one in found] == [[1, 10], [1, 10]]
    assert await again[1].read("1") == state(10, 1)


async def test_a_restore_keeps_its_memory(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, other: MemoryJob
) -> None:
    one = await small(make_host, "one")
    await saved(await job.start_incarnation(1, [(A, one)]), 1, 10, Tier.LOCAL)
    (again,) = await job.form(2, [(A, one)])
    assert (await again.restore())["generation"] == [1, 10]
    asking = await started(other, one)
    refused = await asking.reserve(LARGE)
    assert refused["type"] == "refused" and "the node's limit" in refused["why"]
    assert await again.read("0") == state(10, 0)
    await again.request(type="restored")
    assert (await asking.reserve(LARGE))["type"] == "buffers"


async def test_nothing_is_released_if_it_would_not_suffice(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, other: MemoryJob
) -> None:
    one = await small(make_host, "one")
    ranks = await job.start_incarnation(1, [(A, one)])
    await saved(ranks, 1, 10, Tier.LOCAL)
    asking = await started(other, one)
    assert (await asking.reserve(TOO_LARGE))["type"] == "refused"
    assert await held(one) and (await ranks[0].until(lambda stand: True))["releases"] == 0


async def test_two_jobs_by_default_do_not_take_from_each_other(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, other: MemoryJob
) -> None:
    one = await small(make_host, "one")
    ranks = await job.start_incarnation(1, [(A, one)])
    await saved(ranks, 1, 10, Tier.LOCAL)
    one.agent.memory_manager.budget.limit = 50 * MIB
    other.by_default = True
    asking = await started(other, one)
    refused = await asking.reserve(8 * MIB)
    assert refused["type"] == "refused" and "the node's limit" in refused["why"]
    assert await held(one)


async def test_fewer_copies_take_effect_within_an_incarnation(
    make_host: HostMaker, hub: FakeHub, folder: Path
) -> None:
    """The operator finds from the first reports that copies do not fit. A save that waits for its copy goes
    on without it.
    """
    one, two = await small(make_host, "one"), await small(make_host, "two")
    job = MemoryJob(hub, folder, copies=1, by_default=True)
    members = [(A, one), (B, two)]
    ranks = await job.start_incarnation(1, members)
    for host in (one, two):
        host.agent.memory_manager.budget.limit = 0
    await saved(ranks, 1, 10, Tier.LOCAL)
    job.copies = 0
    await job.assign(1, members)
    for rank in ranks:
        await rank.until(lambda stand: stand["copies"] == 0)
        # The buffer is free again, because nothing waits for a copy any more.
        await rank.until(lambda stand: stand["marks"].get("peer") == [1, 10])
    report = await hub.report(A, lambda report: report.memory.copies == 0 and report.committed)
    assert {one.tier for one in report.committed} == {"local"}, "no copies exist, so none are reported"
