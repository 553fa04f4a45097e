"""Tests of agents that upload checkpoints to a store. In some tests all nodes lose their memory, in others
the store is unreachable.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, eventually
from tests.integration.agents.memory_job import (
    JOB,
    MemoryJob,
    counted,
    damage,
    held,
    reads,
    saved,
    since,
    state,
    travelled,
)
from tests.unit.agents import fault_proxy
from tests.unit.agents.fault_proxy import BUCKET, FaultProxy

from convoy_agents.tiercheck import deciding, restoring
from convoy_agents.tiercheck.stores.s3 import S3, Bucket, Credentials
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Generation, Tier

A, B, C, D = "aaaa-1111", "bbbb-2222", "cccc-3333", "dddd-4444"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with fault_proxy.s3_server() as port:
        yield port


@pytest.fixture
def proxy(server: int) -> Iterator[FaultProxy]:
    found = FaultProxy(server)
    yield found
    found.close()


@pytest.fixture
def prefix() -> str:
    return f"clusters/{uuid4()}"


@pytest.fixture
def job(hub: FakeHub, folder: Path) -> MemoryJob:
    use = hub_pb2.StoreUse(name="s3", every_seconds=0, keep_last=2)
    return MemoryJob(hub, folder, store=use)


async def send_store(hub: FakeHub, proxy: FaultProxy, prefix: str, *hosts: Host, probe: bool = False) -> None:
    """Send the store's settings to the agents, as the hub does."""
    for host in hosts:
        await hub.until(lambda node, message: node == host.node and message.HasField("hello"))  # noqa: B023
        store = hub_pb2.Store(
            name="s3",
            version="1",
            endpoint=proxy.url,
            bucket=BUCKET,
            prefix=prefix,
            path_style=True,
            access_key="key",
            secret_key="secret",
            conditional=True,
            probe=probe,
        )
        hub.send(host.node, store=store)


async def test_a_job_is_restored_from_the_store_after_all_memory_is_lost(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, proxy: FaultProxy, prefix: str
) -> None:
    one, two, three, four = [await make_host(name) for name in ("one", "two", "three", "four")]
    await send_store(hub, proxy, prefix, one, two, three, four)
    before = counted()
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10, Tier.LOCAL, Tier.PEER, Tier.REMOTE)
    await eventually(lambda: since(before) == {"fresh": 2, "copy": 2, "stored": 2, "upload": 2})
    report = await hub.report(A, lambda report: {commit.tier for commit in report.committed} >= {"remote"})
    assert [commit.step for commit in report.committed if commit.tier == "remote"] == [10]
    await one.stop()
    await two.stop()
    again = await job.form(2, [(C, three), (D, four)])
    for shards in await reads(again):
        assert shards == {"0": state(10, 0), "1": state(10, 1)}
    for rank in again:
        await rank.request(type="restored")
        await rank.reserve()
    # The ranks continue the training. Their saves must reach memory and the store.
    await saved(again, 2, 20, Tier.PEER, Tier.REMOTE)
    assert {generation for generation, _ in await held(three)} == {Generation(2, 20)}


async def left_to_the_store(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, proxy: FaultProxy, prefix: str
) -> Host:
    """Save step 10 on two nodes, wait until it is in the store, and stop both nodes. Step 10 is then only
    in the store. Return a third node.
    """
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    await send_store(hub, proxy, prefix, one, two, three)
    job.copies = 0
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10, Tier.REMOTE)
    await one.stop()
    await two.stop()
    return three


async def test_an_unreachable_store_is_not_treated_as_empty(
    make_host: HostMaker,
    hub: FakeHub,
    job: MemoryJob,
    proxy: FaultProxy,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    three = await left_to_the_store(make_host, hub, job, proxy, prefix)
    proxy.inject(fault_proxy.refuse(403, "AccessDenied"))
    monkeypatch.setattr(deciding, "SILENT_NODE_SECONDS", 0.5)
    monkeypatch.setattr(restoring, "DECISION_SECONDS", 2.0)
    (rank,) = await job.form(2, [(C, three)])
    refused = await rank.restore()
    assert refused["type"] == "failed" and BUCKET in refused["why"] and refused["store"]
    assert BUCKET in await hub.trouble(C, "NOT_RESTORED")
    mark = len(hub.messages)
    proxy.heal()
    found = await rank.restore()
    assert found["generation"] == [1, 10]
    assert await rank.read("0") == state(10, 0) and await rank.read("1") == state(10, 1)
    await hub.untroubled(C, mark)


async def test_a_restore_waits_for_the_store_through_many_refusals(
    make_host: HostMaker,
    hub: FakeHub,
    job: MemoryJob,
    proxy: FaultProxy,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store refuses all requests. The restores of 20 incarnations fail, and that of the next
    incarnation waits. It must succeed when the store responds again.
    """
    one, two, three, four = [await make_host(name) for name in ("one", "two", "three", "four")]
    await send_store(hub, proxy, prefix, one, two, three, four)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10, Tier.PEER, Tier.REMOTE)
    await one.stop()
    await two.stop()
    refusals = proxy.inject(fault_proxy.refuse(403, "AccessDenied"))
    monkeypatch.setattr(deciding, "SILENT_NODE_SECONDS", 0.0)
    monkeypatch.setattr(restoring, "DECISION_SECONDS", 0.5)
    for incarnation in range(2, 22):
        waiting = await job.form(incarnation, [(C, three), (D, four)])
        answers = await asyncio.gather(*(rank.restore() for rank in waiting))
        assert [(one["type"], one["store"]) for one in answers] == [("failed", True)] * 2
    monkeypatch.setattr(restoring, "DECISION_SECONDS", 60.0)
    last = await job.form(22, [(C, three), (D, four)])
    requests = asyncio.gather(*(rank.restore() for rank in last))
    before = refusals.fired
    await eventually(lambda: refusals.fired > before + 5)
    assert not requests.done()
    proxy.heal()
    for answer in await requests:
        assert answer["type"] == "restore" and answer["generation"] == [1, 10]
    for rank in last:
        assert await rank.read("0") == state(10, 0) and await rank.read("1") == state(10, 1)


@pytest.mark.parametrize("everything", [True, False], ids=["the store is away", "one object fails"])
async def test_a_store_failure_after_the_decision_drops_no_generation(
    make_host: HostMaker,
    hub: FakeHub,
    job: MemoryJob,
    proxy: FaultProxy,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    everything: bool,
) -> None:
    three = await left_to_the_store(make_host, hub, job, proxy, prefix)
    monkeypatch.setattr(restoring, "FETCH_SECONDS", 0.0)
    (rank,) = await job.form(2, [(C, three)])
    assert (await rank.restore())["generation"] == [1, 10]
    proxy.inject(fault_proxy.refuse(403, "AccessDenied"), path="" if everything else "/chunks/")
    answer = await rank.request(type="shard", shard="0")
    if everything:
        assert (answer["type"], answer["store"]) == ("failed", True) and BUCKET in answer["why"]
        assert BUCKET in await hub.trouble(C, "NOT_RESTORED")
    else:
        assert answer["type"] == "broken", "another generation may be whole"


async def test_a_generation_in_memory_is_restored_without_the_store(
    make_host: HostMaker,
    hub: FakeHub,
    job: MemoryJob,
    proxy: FaultProxy,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = await make_host("one"), await make_host("two")
    await send_store(hub, proxy, prefix, one, two)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10, Tier.PEER)
    proxy.inject(fault_proxy.refuse(403, "AccessDenied"))
    monkeypatch.setattr(deciding, "SILENT_NODE_SECONDS", 0.5)
    again = await job.form(2, [(A, one), (B, two)])
    answer = await again[0].restore()
    assert answer["generation"] == [1, 10] and BUCKET in answer["message"]


async def test_an_upload_survives_transient_store_failures(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, proxy: FaultProxy, prefix: str
) -> None:
    one, two = await make_host("one"), await make_host("two")
    await send_store(hub, proxy, prefix, one, two)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    proxy.inject(fault_proxy.refuse(503), method="PUT", times=6)
    proxy.inject(fault_proxy.lose, method="PUT", path="/records/", times=1)
    await saved(ranks, 1, 10, Tier.LOCAL, Tier.REMOTE)
    job.copies = 0
    inventory = await one.agent.remotes.inventory(one.agent.pods.get(A).state.assignment)  # type: ignore
    assert set(inventory.records) == {Generation(1, 10)} and len(inventory.manifests) == 2


async def test_a_shard_damaged_before_upload_is_reported_until_the_next_upload(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, proxy: FaultProxy, prefix: str
) -> None:
    one, two = await make_host("one"), await make_host("two")
    await send_store(hub, proxy, prefix, one, two)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    # Before an upload the agent lists the store's objects. Refuse lists, so that no upload starts before the
    # test has damaged the shard.
    proxy.inject(fault_proxy.refuse(503), method="GET", path="list-type")
    await saved(ranks, 1, 10, Tier.PEER)
    for chunk in (0, 4, 8):
        await damage(one, "0", Generation(1, 10), chunk * 2**20)
    proxy.heal()
    trouble = await hub.trouble(A, "NOT_STORED")
    assert "gen-1-10: chunk " in trouble and "is damaged; the next generation is uploaded instead" in trouble
    mark = len(hub.messages)
    await saved(ranks, 1, 20, Tier.PEER, Tier.REMOTE)
    await hub.untroubled(A, mark)


async def test_uploads_respect_the_configured_interval(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, proxy: FaultProxy, prefix: str
) -> None:
    job.store = hub_pb2.StoreUse(name="s3", every_seconds=3600, keep_last=2)
    one, two = await make_host("one"), await make_host("two")
    await send_store(hub, proxy, prefix, one, two)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10, Tier.PEER, Tier.REMOTE)
    for step in (20, 30, 40):
        await saved(ranks, 1, step, Tier.PEER)
    marks = await one.agent.memory_manager.open(JOB).inspect(lambda store: dict(store.marks))
    assert marks[Tier.REMOTE] == Generation(1, 10)
    records = await one.agent.memory_manager.open(JOB).inspect(lambda store: dict(store.records))
    assert not records[Generation(1, 40)].remote


async def test_an_earlier_incarnation_cannot_commit_to_the_store(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, proxy: FaultProxy, prefix: str
) -> None:
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    job.copies = 0
    await send_store(hub, proxy, prefix, one, two, three)
    (old,) = await job.start_incarnation(1, [(A, one)])
    # Node one does not learn that incarnation 2 runs on node three.
    await job.start_incarnation(2, [(C, three)])
    await old.save(10)
    await old.stands(Tier.LOCAL, 1, 10)
    plan = one.agent.pods.get(A).state.assignment  # type: ignore[union-attr]
    assert plan is not None
    job_memory = one.agent.memory_manager.open(JOB)
    (record,) = (await job_memory.inspect(lambda store: dict(store.records))).values()
    assert record.remote
    for key in record.shards.values():
        await one.agent.remotes.upload(plan, job_memory, key)
    assert not await one.agent.remotes.commit(plan, record)


@pytest.mark.parametrize("conditional", [True, False])
async def test_an_agent_reports_the_capabilities_of_a_store(
    make_host: HostMaker, hub: FakeHub, proxy: FaultProxy, prefix: str, conditional: bool
) -> None:
    one = await make_host("one")
    if not conditional:
        proxy.inject(fault_proxy.without("if-none-match"))
    await send_store(hub, proxy, prefix, one, probe=True)
    message = await hub.until(lambda node, message: message.HasField("store"))
    assert (message.store.name, message.store.version, message.store.reached) == ("s3", "1", True)
    assert message.store.conditional == conditional
    assert ("conditional" in message.store.message) != conditional or conditional


async def test_an_agent_reports_why_a_store_is_unusable(
    make_host: HostMaker, hub: FakeHub, proxy: FaultProxy, prefix: str
) -> None:
    one = await make_host("one")
    proxy.inject(fault_proxy.refuse(403, "AccessDenied"))
    await send_store(hub, proxy, prefix, one, probe=True)
    message = await hub.until(lambda node, message: message.HasField("store"))
    assert not message.store.reached and BUCKET in message.store.message
    assert "secret" not in message.store.message


async def test_a_job_resumes_from_another_job_s_checkpoint(
    make_host: HostMaker, hub: FakeHub, folder: Path, job: MemoryJob, proxy: FaultProxy, prefix: str
) -> None:
    one, two = await make_host("one"), await make_host("two")
    await send_store(hub, proxy, prefix, one, two)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10, Tier.REMOTE)
    await saved(ranks, 1, 20, Tier.REMOTE)
    use = hub_pb2.StoreUse(name="s3", every_seconds=0, keep_last=2, resume_uid=JOB, resume_step=10)
    other = MemoryJob(hub, folder, store=use, name="other")
    begun = await other.form(1, [(C, one), (D, two)])
    for rank in begun:
        assert (await rank.restore())["generation"] == [0, 10]
    for shards in await reads(begun):
        assert shards == {"0": state(10, 0), "1": state(10, 1)}
    for rank in begun:
        await rank.request(type="restored")
        await rank.reserve()
    await saved(begun, 1, 11, Tier.LOCAL, Tier.PEER, Tier.REMOTE)
    # The job must now resume from its own save, not from the other job's.
    again = await other.form(2, [(C, one), (D, two)])
    for rank in again:
        assert (await rank.restore())["generation"] == [1, 11]


async def test_a_job_without_the_requested_checkpoint_does_not_start_at_step_0(
    make_host: HostMaker, hub: FakeHub, folder: Path, proxy: FaultProxy, prefix: str
) -> None:
    use = hub_pb2.StoreUse(name="s3", every_seconds=0, keep_last=2, resume_uid="nobody")
    other = MemoryJob(hub, folder, copies=0, store=use, name="other")
    one = await make_host("one")
    await send_store(hub, proxy, prefix, one)
    (rank,) = await other.form(1, [(C, one)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restoring, "DECISION_SECONDS", 2.0)
        for module in (deciding, restoring):
            patch.setattr(module, "ADOPT_SECONDS", 1.0)
        refused = await rank.restore()
    assert refused["type"] == "failed" and "it has no complete checkpoint" in refused["why"]


async def test_a_job_cannot_resume_from_another_namespace(
    make_host: HostMaker, hub: FakeHub, folder: Path, job: MemoryJob, proxy: FaultProxy, prefix: str
) -> None:
    one = await make_host("one")
    await send_store(hub, proxy, prefix, one)
    job.copies = 0
    await saved(await job.start_incarnation(1, [(A, one)]), 1, 10, Tier.REMOTE)
    use = hub_pb2.StoreUse(name="s3", every_seconds=0, keep_last=2, resume_uid=JOB)
    other = MemoryJob(hub, folder, copies=0, store=use, name="other", namespace="elsewhere")
    (rank,) = await other.form(1, [(C, one)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restoring, "DECISION_SECONDS", 2.0)
        for module in (deciding, restoring):
            patch.setattr(module, "ADOPT_SECONDS", 1.0)
        refused = await rank.restore()
    assert refused["type"] == "failed" and "it has no complete checkpoint" in refused["why"]


async def test_encoded_and_plain_chunks_are_restored_together(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, proxy: FaultProxy, prefix: str
) -> None:
    job.copies = 0
    one, two, three, four = [await make_host(name) for name in ("one", "two", "three", "four")]
    await send_store(hub, proxy, prefix, one, two, three, four)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    before = travelled("store")
    await saved(ranks, 1, 10, Tier.LOCAL, Tier.REMOTE)
    went = {kind: total - before[kind] for kind, total in travelled("store").items()}
    plan = one.agent.pods.get(A).state.assignment  # type: ignore[union-attr]
    assert plan is not None
    store = one.agent.remotes.store_of(plan)
    lengths = {chunk.digest: chunk for one in store.inventory().manifests.values() for chunk in one.chunks}
    sizes = store.listing("chunks").sizes
    shorter = [digest for digest, chunk in lengths.items() if sizes[digest] < chunk.length]
    assert shorter, "the first that a node sends is encoded, to see how long it takes"
    assert went == {
        "raw": sum(chunk.length for chunk in lengths.values()),
        "sent": sum(sizes[digest] for digest in lengths),
    }
    # Replace one encoded chunk with a plain chunk.
    keys = Credentials("key", "secret")
    blobs = S3(Bucket(BUCKET, endpoint_url=proxy.url, addressing="path", prefix=prefix), keys)
    plain = Store(blobs, "default", JOB)
    plain.put_chunk(lengths[shorter[0]], plain.get_chunk(lengths[shorter[0]]))
    sizes = store.listing("chunks").sizes
    assert sizes[shorter[0]] == lengths[shorter[0]].length
    await one.stop()
    await two.stop()
    for shards in await reads(await job.form(2, [(C, three), (D, four)])):
        assert shards == {"0": state(10, 0), "1": state(10, 1)}
