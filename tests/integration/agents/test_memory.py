"""Tests of checkpoints in the memory of real agents. The agents save and copy them, nodes are lost with
their memory, and ranks restore from the remaining copies.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, Pod, assignment, eventually
from tests.integration.agents.memory_job import (
    JOB,
    SIZE,
    MemoryJob,
    Rank,
    at,
    counted,
    damage,
    held,
    since,
    state,
    until_held,
)

from convoy_agents.csi import mounts
from convoy_agents.tiercheck import restoring
from convoy_agents.wire import hub_pb2, slot_tokens
from convoy_agents.wire.slot_tokens import SlotToken
from convoy_controllers.checkpoint.generation import Generation, Tier

A, B, C = "aaaa-1111", "bbbb-2222", "cccc-3333"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        yield Path(name)


@pytest.fixture
def job(hub: FakeHub, folder: Path) -> MemoryJob:
    return MemoryJob(hub, folder)


async def saved(ranks: list[Rank], incarnation: int, step: int) -> None:
    """Save the state after a step on all ranks, and wait for its commit and its copies."""
    for rank in ranks:
        assert (await rank.save(step))["type"] == "sealed"
    for rank in ranks:
        await rank.stands(Tier.LOCAL, incarnation, step)
        await rank.stands(Tier.PEER, incarnation, step)


async def restored(ranks: list[Rank]) -> list[dict[str, bytes]]:
    """Let all ranks restore, and let them confirm it to their agents. Return for each rank the restored
    bytes by shard.
    """
    found = []
    for rank in ranks:
        answer = await rank.restore()
        shards = {shard: await rank.read(shard) for shard in answer["shards"]}
        assert all(isinstance(data, bytes) for data in shards.values())
        found.append(shards)
    for rank in ranks:
        await rank.request(type="restored")
    return found  # type: ignore[return-value]


async def test_a_save_is_committed_locally_then_with_its_copies(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    for step in (10, 20, 30, 40):  # save more generations than there are buffers
        await saved(ranks, 1, step)
    last = Generation(1, 40)
    assert await held(one) == await held(two) == {(last, "0"), (last, "1")}
    for uid in (A, B):
        report = await hub.report(
            uid, lambda report: {(c.tier, c.step) for c in report.committed} >= {("local", 40), ("peer", 40)}
        )
        assert {commit.incarnation for commit in report.committed} == {1}


async def test_a_lost_node_s_shard_is_restored_from_its_peer(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    before = counted()
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    assert since(before) == {"fresh": 2, "copy": 2}
    await two.stop()  # this node does not return, so its memory is lost
    again = await job.form(2, [(A, one), (C, three)])
    answer = await again[0].restore()
    assert (answer["generation"], answer["world"], answer["torch"]) == ([1, 10], 2, "2.13")
    for shards in await restored(again):
        assert shards == {"0": state(10, 0), "1": state(10, 1)}
    assert since(before).items() >= {"fresh": 2, "found": 2, "restore": 2}.items()
    # The agents must copy both shards again, although no save follows.
    start = {(Generation(1, 10), "0"), (Generation(1, 10), "1")}
    for host in (one, three):
        await until_held(host, start)
    for rank in again:
        await rank.reserve()
    await saved(again, 2, 20)
    assert {generation for generation, _ in await held(three)} == {Generation(2, 20)}


async def test_a_crashed_agent_resumes_copies_of_the_restored_generation(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    await two.stop()
    again = await job.form(2, [(A, one), (C, three)])
    for shard, rank in enumerate(again):
        await rank.restore()
        assert await rank.read(str(shard)) == state(10, shard)
    three.agent.memory_manager.budget.limit = 0
    for rank in again:
        await rank.request(type="restored")
    assert await held(three) == {(Generation(1, 10), "1")}
    await crashed(hub, one)
    three.agent.memory_manager.budget.limit = 2**30
    await until_held(three, {(Generation(1, 10), "0"), (Generation(1, 10), "1")})


@pytest.mark.parametrize("copies", [0, 1])
async def test_the_restored_step_can_be_saved_again(
    make_host: HostMaker, hub: FakeHub, folder: Path, copies: int
) -> None:
    job = MemoryJob(hub, folder, copies=copies)
    one, two = await make_host("one"), await make_host("two")
    members: list[tuple[str, Host]] = [(A, one), (B, two)]
    ranks = await job.start_incarnation(1, members)
    await saved(ranks, 1, 10)
    again = await job.start_incarnation(2, members)
    await saved(again, 2, 10)
    job_memory = one.agent.memory_manager.open(JOB)
    records = await job_memory.inspect(lambda store: dict(store.records))
    assert records[Generation(2, 10)].parent == Generation(1, 10)
    await saved(again, 2, 20)
    last = await job.form(3, members)
    assert (await last[0].restore())["generation"] == [2, 20]


async def test_a_save_of_step_0_is_refused(make_host: HostMaker, hub: FakeHub, job: MemoryJob) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    refused = await ranks[0].save(0)
    assert refused["type"] == "failed" and "step 0" in refused["why"]


async def test_a_node_outside_the_job_still_serves_its_shards(
    make_host: HostMaker, hub: FakeHub, folder: Path
) -> None:
    job = MemoryJob(hub, folder, copies=0)
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    for rank in ranks:
        await rank.save(10)
    for rank in ranks:
        await rank.stands(Tier.LOCAL, 1, 10)
    again = await job.form(2, [(A, one), (C, three)], holders=[two])
    for shards in await restored(again):
        assert shards == {"0": state(10, 0), "1": state(10, 1)}


async def test_an_incarnation_without_any_checkpoint_starts_fresh_and_reports_it(
    make_host: HostMaker, hub: FakeHub, folder: Path
) -> None:
    job = MemoryJob(hub, folder, copies=0)
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    for rank in ranks:
        await rank.save(10)
    await ranks[0].stands(Tier.LOCAL, 1, 10)
    await two.stop()
    before = counted()
    answer = await (await job.form(2, [(A, one), (C, three)]))[0].restore()
    assert answer["generation"] is None and answer["lost"]
    assert since(before) == {"lost": 1}
    assert "no node has shard 1 of gen-1-10" in answer["message"]


@pytest.mark.parametrize("at_byte", [0, 4 * 2**20, SIZE - 1])
async def test_a_bit_flip_is_detected_and_the_copy_is_restored(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, at_byte: int
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    await damage(one, "0", Generation(1, 10), at_byte)
    for shards in await restored(await job.form(2, [(A, one), (B, two)])):
        assert shards == {"0": state(10, 0), "1": state(10, 1)}


async def test_an_unreadable_generation_is_skipped_for_an_older_one(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "FETCH_SECONDS", 2.0)
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    # Refuse all copies of the next generation. Each of its shards is then only on the node that saved it.
    for host in (one, two):
        host.agent.memory_manager.budget.limit = 0
    for rank in ranks:
        await rank.save(20)
    for rank in ranks:
        await rank.stands(Tier.LOCAL, 1, 20)
    await damage(two, "1", Generation(1, 20))
    for host in (one, two):
        host.agent.memory_manager.budget.limit = 2**30
    again = await job.form(2, [(A, one), (B, two)])
    first = [await rank.restore() for rank in again]
    assert [answer["generation"] for answer in first] == [[1, 20], [1, 20]]
    broken = [one for rank in again if isinstance(one := await rank.read("1"), list)]
    assert broken
    reported = [pair for found in broken for pair in found]
    second = [await rank.restore(1, reported) for rank in again]
    assert [answer["generation"] for answer in second] == [[1, 10], [1, 10]]
    assert "gen-1-20 is incomplete: no node has shard 1" in second[0]["message"]
    for rank in again:
        assert await rank.read("0") == state(10, 0) and await rank.read("1") == state(10, 1)


async def crashed(hub: FakeHub, host: Host) -> None:
    """Crash and restart a node's agent, and wait for its new session."""
    mark = len(hub.messages)
    await host.crash()
    await host.start()
    await eventually(lambda: bool(host.agent.peer_port))
    await hub.until(lambda node, message: node == host.node and message.HasField("hello"), mark)


async def test_a_crashed_agent_keeps_its_shards_and_resumes_pending_commits(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    await ranks[0].save(20)  # this commit stays undecided at slot 0's agent, because slot 1 has not voted
    await crashed(hub, one)
    moved = hub_pb2.PeerMoved(pod_uid=B, node="one", peer_address=f"127.0.0.1:{one.agent.peer_port}")
    hub.send("two", peer_moved=moved)
    await ranks[1].save(20)
    for rank in ranks:
        await rank.stands(Tier.PEER, 1, 20)
    await crashed(hub, two)
    for uid, host in ((A, one), (B, two)):
        job.launchers[uid] = await host.launcher(uid, 1)
    for shards in await restored(await job.form(2, [(A, one), (B, two)])):
        assert shards == {"0": state(20, 0), "1": state(20, 1)}


async def test_an_agent_recomputes_damaged_shares(make_host: HostMaker, hub: FakeHub, job: MemoryJob) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    for step in (10, 20):
        await saved(ranks, 1, step)
    shares, limit = one.agent.memory_manager.budget.shares, one.agent.memory_manager.budget.shares[JOB]
    (one.root / "run" / "memory" / JOB / "shares.json").write_bytes(b"{}")
    await crashed(hub, one)
    assert one.agent.memory_manager.budget.shares is not shares
    used = 3 * SIZE  # the job uses two buffers and one copy
    assert used <= one.agent.memory_manager.budget.shares[JOB] <= limit
    job.limit = limit
    job.launchers[A] = await one.launcher(A, 1)
    ranks = await job.start_incarnation(2, [(A, one), (B, two)])
    for step in (30, 40):
        await saved(ranks, 2, step)


async def test_ranks_with_different_plans_make_no_generation(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await ranks[0].save(10, plan="mine")
    await ranks[1].save(10, plan="yours")
    for rank in ranks:
        await rank.save(20)
    for rank in ranks:
        await rank.stands(Tier.LOCAL, 1, 20)
    for host in (one, two):
        records = await host.agent.memory_manager.open(JOB).inspect(lambda store: dict(store.records))
        assert records[Generation(1, 20)].parent is None, "nothing was committed before it"


async def test_a_job_over_the_limit_gets_the_number_of_missing_bytes(
    make_host: HostMaker, hub: FakeHub, folder: Path
) -> None:
    one = await make_host("one")
    ranks = await MemoryJob(hub, folder, limit=16 * 2**20).form(1, [(A, one)])
    await ranks[0].restore()
    refused = await ranks[0].reserve()
    assert refused["type"] == "refused"
    size = 2 * SIZE
    assert refused["missing"] == size + size // 8192 + 8 * 2**20 - 16 * 2**20
    assert "is 16777216 bytes" in refused["why"]
    huge = await ranks[0].reserve(2**30)
    assert huge["missing"] > 2**30


async def test_a_job_s_memory_is_released_with_the_job(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    received = await hub.until(
        lambda node, message: node == "one" and any(one.slot_token for one in message.held_jobs.jobs)
    )
    (received,) = received.held_jobs.jobs
    assert (
        slot_tokens.verify(received.slot_token, hub.authority.pem) == SlotToken(JOB, 1, 0, "one")
        and received.job_uid == JOB
    )
    ranks[0].line.close()
    hub.send("one", drop_job=hub_pb2.DropJob(job_uid=JOB))
    folder = one.settings.run_dir / "memory" / JOB
    await eventually(lambda: str(folder) not in {mount.target for mount in mounts.table()})
    await eventually(lambda: not one.agent.memory_manager.jobs and not folder.exists())
    assert one.agent.memory_manager.budget.used == 0


async def test_a_leaving_agent_removes_only_files_without_pods_and_checkpoints(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    run = one.settings.run_dir
    memory, libraries = run / "memory" / JOB, list(run.glob("lib-*"))
    for pods in (1, 0):
        if not pods:
            ranks[0].line.close()
            await one.unpublish(A)
        await one.stop()
        assert memory.is_mount() and list(run.glob("lib-*")) == libraries
        assert len(list((run / "pods").iterdir())) == pods
        count = len(hub.messages)
        await one.start()
    again = await hub.until(lambda node, message: node == "one" and message.HasField("hello"), count)
    (kept,) = again.hello.held_jobs.jobs
    assert slot_tokens.verify(kept.slot_token, hub.authority.pem).node == "one", (
        "it lies beside what came by it"
    )
    hub.send("one", drop_job=hub_pb2.DropJob(job_uid=JOB))
    await eventually(lambda: not one.agent.memory_manager.jobs)
    await one.stop()
    assert list(run.iterdir()) == []


async def test_an_earlier_incarnation_cannot_write(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    again = await job.form(2, [(C, three), (A, one)])
    await restored(again)
    # Node two does not learn that incarnation 2 exists. No agent may commit the next save of its rank.
    await ranks[1].save(20)
    for rank in again:
        await rank.reserve()
    await saved(again, 2, 15)
    records = await one.agent.memory_manager.open(JOB).inspect(lambda store: set(store.records))
    assert Generation(1, 20) not in records and Generation(2, 15) in records


async def test_new_ranks_reuse_the_buffers_of_earlier_ranks(
    make_host: HostMaker, hub: FakeHub, folder: Path
) -> None:
    job = MemoryJob(hub, folder, copies=0)
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    for rank in ranks:
        await rank.save(10)
    await ranks[0].stands(Tier.LOCAL, 1, 10)
    # The two pods exchange their slots. So the shard that each rank must read is in the buffers of the other
    # rank.
    members: list[tuple[str, Host]] = [(B, two), (A, one)]
    again = await job.start_incarnation(2, members)
    for rank in again:
        await rank.save(20)
    for rank in again:
        await rank.stands(Tier.PEER, 2, 20)
    await again[0].reserve()
    buffers = sorted(path.name for path in (two.settings.run_dir / "memory" / JOB / "buffers").iterdir())
    assert buffers == ["0-0", "0-1"]


@pytest.mark.parametrize(
    "question",
    [
        {"type": "erase"},
        {"type": "reserve", "size": -1},
        {"type": "seal", "buffer": "0-0", "step": 1},
        {"type": "restore", "attempt": 0, "broken": [1]},
    ],
)
async def test_a_malformed_request_ends_the_connection(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, question: dict[str, object]
) -> None:
    one = await make_host("one")
    await job.form(1, [(A, one)])
    pod = await Pod.dial(one.target(A) / "agent.sock", role="memory", incarnation=1, rank=0)
    pod.send(**question)
    assert await pod.ended()


@pytest.mark.parametrize("buffer", ["1-0", "../records", "/etc/passwd", "0-7", ""])
async def test_a_rank_can_seal_only_its_own_free_buffers(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, buffer: str
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    refused = await ranks[0].request(
        type="seal", buffer=buffer, step=5, length=SIZE, world=2, torch="2.13", plan="same"
    )
    assert refused["type"] == "failed" and "free buffers" in refused["why"]
    longer = await ranks[0].request(
        type="seal", buffer="0-0", step=5, length=100 * SIZE, world=2, torch="2.13", plan="same"
    )
    assert longer["type"] == "failed"
    assert not await held(one)


async def test_the_connection_of_an_earlier_incarnation_is_closed(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one = await make_host("one")
    await job.form(1, [(A, one)])
    pod = await Pod.dial(one.target(A) / "agent.sock", role="memory", incarnation=1, rank=0)
    await job.form(2, [(A, one)])
    assert await pod.ended()


async def test_running_ranks_receive_a_changed_interval(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await ranks[0].until(lambda stand: stand["interval"] == 0)
    again = assignment("job", 1, 0, [(A, one, 1), (B, two, 1)])
    again.memory.CopyFrom(hub_pb2.MemoryTiers(copies=1, hosts=[at(two)], interval_seconds=42))
    hub.send(one.node, assignment=again)
    await ranks[0].until(lambda stand: stand["interval"] == 42)
    report = await hub.report(A, lambda report: report.interval_seconds == 42)
    assert report.incarnation == 1
    await saved(ranks, 1, 10)


async def test_a_restore_over_the_limit_reports_the_missing_bytes(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    job.limit = 2**20
    again = await job.form(2, [(A, one), (C, three)])
    assert (await again[1].restore())["generation"] == [1, 10]
    failed = await again[1].request(type="shard", shard="0")
    assert failed["type"] == "failed" and "more bytes are needed" in failed["why"]
    assert "more bytes are needed" in await hub.trouble(C, "NO_MEMORY")
