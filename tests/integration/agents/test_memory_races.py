"""Tests of races: copies that are delayed, agents that are disconnected, and jobs that end during a
request.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import TIMEOUT, FakeHub, Host, eventually
from tests.integration.agents.memory_job import JOB, SIZE, MemoryJob, damage, held, state, until_held
from tests.integration.agents.test_memory import A, B, C, folder, job, saved

from convoy_agents.csi import mounts
from convoy_agents.tiercheck import committer, memory, shard_store, trouble_reporter
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Generation, Tier

__all__ = ["folder", "job"]
D = "dddd-4444"


async def test_a_fetched_shard_stays_once_it_counts_as_a_copy(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    await two.stop()
    again = await job.form(2, [(A, one), (C, three)])
    for rank in again:
        for shard in (await rank.restore())["shards"]:
            await rank.read(shard)
    # The rank on node one finishes its restore first. Node three has already fetched the shard that node one
    # would copy to it, so node one's agent need not send it.
    await again[0].request(type="restored")
    uses = three.agent.memory_manager.open(JOB).uses
    await eventually(lambda: bool(uses.copies))
    await again[1].request(type="restored")
    start = Generation(1, 10)
    assert await held(three) >= {(start, "0"), (start, "1")}


@pytest.mark.parametrize("first", [A, B])
async def test_two_pods_of_a_job_share_a_node(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, first: str
) -> None:
    one = await make_host("one")
    await one.publish(first)
    job.launchers[first] = await one.launcher(first)
    await hub.report(first, lambda report: report.launcher_connected)
    ranks = await job.start_incarnation(1, [(A, one), (B, one)])
    for rank in ranks:
        await rank.save(10)
    for rank in ranks:
        await rank.stands(Tier.PEER, 1, 10)
    again = await job.form(2, [(A, one), (B, one)])
    for rank in again:
        assert (await rank.restore())["generation"] == [1, 10]
        assert await rank.read("0") == state(10, 0) and await rank.read("1") == state(10, 1)
    for rank in again:
        await rank.request(type="restored")
    assert len(await held(one)) == 2


async def test_a_shard_damaged_before_its_copies_is_refused_to_the_rank(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    link = await one.rank(A, 0, 1)
    two.agent.memory_manager.budget.limit = 0
    for rank in ranks:
        await rank.save(20)
    for rank in ranks:
        await rank.stands(Tier.LOCAL, 1, 20)
    await damage(one, "0", Generation(1, 20))
    two.agent.memory_manager.budget.limit = 2**30
    while (response := await link.receive())["type"] != "refused":
        pass
    assert response["step"] == 20


async def test_copies_are_made_as_soon_as_memory_is_available(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trouble_reporter, "REPORT_AFTER_SECONDS", 0.2)
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    two.agent.memory_manager.budget.limit = 0
    for rank in ranks:
        await rank.save(20)
    for rank in ranks:
        await rank.stands(Tier.LOCAL, 1, 20)
        await rank.until(lambda stand: not stand["buffer"])
    # All buffers are occupied by saves without copies, so the ranks cannot save. The pod's report must name
    # the node that lacks memory, and the missing bytes.
    trouble = await hub.trouble(A, "NOT_COPIED")
    assert re.fullmatch(r"two: [1-9]\d* more bytes are needed: the node's limit is 0 bytes", trouble)
    mark = len(hub.messages)
    two.agent.memory_manager.budget.limit = 2**30
    for rank in ranks:
        await rank.stands(Tier.PEER, 1, 20)
        await rank.until(lambda stand: bool(stand["buffer"]))
    await hub.untroubled(A, mark)


async def test_a_step_saved_by_only_one_rank_of_a_pod_is_abandoned(
    make_host: HostMaker, hub: FakeHub, folder: object, job: MemoryJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await make_host("one")
    job.copies = 0
    job.processes = 2
    ranks = await job.form(1, [(A, one)])
    ranks.append(job.rank(A, one, 1, 1))
    for rank in ranks:
        await rank.restore()
    for rank in ranks:
        await rank.request(type="restored")
        await rank.reserve()
    with monkeypatch.context() as patch:
        patch.setattr(committer, "PARTIAL_SECONDS", 0.2)
        await ranks[0].save(10)
        await ranks[0].until(lambda stand: stand["holds"] == [])
    for rank in ranks:
        await rank.save(20)
    for rank in ranks:
        await rank.stands(Tier.PEER, 1, 20)


async def test_a_surveyed_incarnation_commits_nothing(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    """The hub sends nothing about incarnation 2 to the nodes of incarnation 1. Slot 0 of incarnation 2
    surveys these nodes. After that they must refuse every commit of incarnation 1.
    """
    job.copies = 0
    one, two, three, four = [await make_host(name) for name in ("one", "two", "three", "four")]
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    for rank in ranks:
        await rank.save(10)
    for rank in ranks:
        await rank.stands(Tier.PEER, 1, 10)
    again = await job.form(2, [(C, three), (D, four)], holders=[one, two])
    assert (await again[0].restore())["generation"] == [1, 10]
    for rank in ranks:
        await rank.save(20)
    await ranks[0].until(lambda stand: [1, 20] in stand["holds"])
    for shard in ("0", "1"):
        assert await again[0].read(shard) == state(10, int(shard))
    marks = await one.agent.memory_manager.open(JOB).inspect(lambda store: dict(store.marks))
    assert marks[Tier.LOCAL] == Generation(1, 10)


async def test_a_restore_waits_for_a_holder_whose_agent_restarts(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    job.copies = 0
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    for rank in ranks:
        await rank.save(10)
    for rank in ranks:
        await rank.stands(Tier.PEER, 1, 10)
    port = two.agent.peer_port
    await two.crash()
    again = await job.form(2, [(A, one), (C, three)], holders=[two])
    restore = asyncio.create_task(again[0].restore())
    decisions = one.agent._ranks._restores._decisions._decisions
    await eventually(lambda: bool(decisions))
    two.settings = replace(two.settings, peer_port=port)
    await two.start()
    assert (await restore)["generation"] == [1, 10]


async def test_an_ended_job_gets_no_memory_while_a_rank_still_polls(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    known = (await ranks[0].request(type="poll", known=""))["status"]
    poll = asyncio.create_task(ranks[0].request(type="poll", known=known))
    hub.send("one", drop_job=hub_pb2.DropJob(job_uid=JOB))
    assert (await poll)["type"] in ("status", "failed")
    await eventually(lambda: not one.agent.memory_manager.jobs)
    folder = str(one.settings.run_dir / "memory" / JOB)
    assert folder not in {mount.target for mount in mounts.table()}
    assert one.agent.memory_manager.budget.used == 0


async def test_a_pod_that_truncates_its_buffer_does_not_harm_others(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    for buffer in (one.settings.run_dir / "memory" / JOB / "buffers").iterdir():
        with buffer.open("r+b") as file:
            file.truncate(4096)
    answer = await ranks[0].request(
        type="seal", buffer="0-1", step=20, length=SIZE, world=2, torch="2.13", plan="same"
    )
    assert answer["type"] == "failed"
    members: list[tuple[str, Host]] = [(A, one), (B, two)]
    for rank in await job.form(2, members):
        assert (await rank.restore())["generation"] == [1, 10]
        assert await rank.read("0") == state(10, 0)
    await until_held(two, {(Generation(1, 10), "0")})


async def test_the_scrubber_finds_and_repairs_damage(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    for rank in ranks:
        assert (await rank.save(10))["type"] == "sealed"
    for rank in ranks:
        await rank.stands(Tier.PEER, 1, 10)
    wanted = {(Generation(1, 10), "0"), (Generation(1, 10), "1")}
    for host in (one, two):
        await host.agent.scrubber.scrub()
        assert await held(host) == wanted, "what is whole stays"
    # The damaged shard is that of the rank on node one itself. It is in a buffer of this rank.
    await damage(one, "0", Generation(1, 10))
    await damage(two, "1", Generation(1, 10), 0)
    await one.agent.scrubber.scrub()
    await two.agent.scrubber.scrub()
    for host in (one, two):
        assert await held(host) == wanted
        job_memory = host.agent.memory_manager.get(JOB)
        assert job_memory is not None
        for key in await job_memory.inspect(lambda store: list(store.manifests)):
            assert await job_memory.verified_path(key) is not None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO], ids=errno.errorcode.__getitem__)
async def test_a_failed_record_write_keeps_the_previous_record(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    write, refused = memory.write_atomic, asyncio.Event()
    loop = asyncio.get_running_loop()

    def failing(path: Path, data: bytes) -> None:
        if path.parent.name == "records" and path.is_relative_to(one.root):
            loop.call_soon_threadsafe(refused.set)
            raise OSError(number, os.strerror(number))
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(shard_store, "write_atomic", failing)
        for rank in ranks:
            await rank.save(20)
        async with asyncio.timeout(TIMEOUT):
            await refused.wait()
        for host in (one, two):
            marks = await host.agent.memory_manager.open(JOB).inspect(lambda store: dict(store.marks))
            assert set(marks.values()) == {Generation(1, 10)}
        assert os.strerror(number) in await hub.trouble(A, "NO_MEMORY")
        mark = len(hub.messages)
    # Writes succeed again. The agent must have kept retrying, so it must now write the record.
    for rank in ranks:
        await rank.stands(Tier.PEER, 1, 20)
    await hub.untroubled(A, mark)
    for rank in await job.form(2, [(A, one), (B, two)]):
        assert (await rank.restore())["generation"] == [1, 20]
        assert await rank.read("0") == state(20, 0)
