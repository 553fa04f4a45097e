"""Tests of agents that use a real S3 server through a proxy that injects faults.

Most tests end with the loss of all nodes' memory. They then compare the state that was restored from the
store with the saved state.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from e2e.cluster import binaries
from e2e.cluster.progress import Progress
from e2e.drive.s3_server import ACCESS, BUCKET, SECRET, S3Server, serve
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import TIMEOUT, FakeHub, Host, eventually
from tests.integration.agents.memory_job import JOB, MemoryJob, Rank, state
from tests.unit.agents import fault_proxy
from tests.unit.agents.fault_proxy import Fault, FaultProxy

from convoy_agents import commit_client
from convoy_agents.tiercheck import deciding, remote
from convoy_agents.tiercheck.stores.garbage_collection import GRACE_SECONDS
from convoy_agents.tiercheck.stores.s3 import S3, Bucket, ClientSettings, Credentials
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.retention import Keep

A, B, C, D = "aaaa-1111", "bbbb-2222", "cccc-3333", "dddd-4444"
# The timeout is long because the first test also starts the server.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with serve(binaries.tool("versitygw", Progress(quiet=True)), "127.0.0.1") as found:
        yield found


@pytest.fixture
def job(hub: FakeHub) -> Iterator[MemoryJob]:
    use = hub_pb2.StoreUse(name="s3", every_seconds=0, keep_last=2)
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        yield MemoryJob(hub, Path(name), store=use)


class Impatient(S3):
    """An S3 client whose requests time out after one second."""

    def __init__(self, bucket: Bucket, credentials: Credentials) -> None:
        super().__init__(bucket, credentials, ClientSettings(read_seconds=1.0))


@dataclass
class Remote:
    """The store behind the proxy, with direct access to the store for checks."""

    hub: FakeHub
    server: S3Server
    proxy: FaultProxy
    prefix: str
    never: threading.Event
    """An event that is set only at the end of the test. Requests that the proxy stalls wait for this event.
    """
    conditional: bool = True
    version: int = 0

    async def send_store(self, *hosts: Host, secret: str = SECRET, probe: bool = False) -> None:
        """Send the store's settings and keys to the agents, as the hub does."""
        self.version += 1
        for host in hosts:
            await self.hub.until(lambda node, message: node == host.node and message.HasField("hello"))  # noqa: B023
            store = hub_pb2.Store(
                name="s3",
                version=str(self.version),
                endpoint=self.proxy.url,
                bucket=BUCKET,
                prefix=self.prefix,
                path_style=True,
                access_key=ACCESS,
                secret_key=secret,
                conditional=self.conditional,
                probe=probe,
            )
            self.hub.send(host.node, store=store)

    @property
    def store(self) -> Store:
        """Return the job's part of the store. It bypasses the proxy."""
        keys = Credentials(ACCESS, SECRET)
        blobs = S3(
            Bucket(BUCKET, endpoint_url=self.server.endpoint, addressing="path", prefix=self.prefix), keys
        )
        return Store(blobs, "default", JOB)

    async def is_clean(self, *steps: int) -> None:
        """Collect garbage, then check that the store contains exactly these generations of incarnation 1,
        each once.

        The check runs in a thread, because the agents and their hub need the event loop to keep their
        sessions.
        """
        await asyncio.to_thread(self._is_clean, *steps)

    def _is_clean(self, *steps: int) -> None:
        wanted = {Generation(1, step) for step in steps}
        assert set(self.store.inventory().records) == wanted
        # Garbage collection deletes nothing within the grace period after its last write. So set the
        # modification time of all objects to an earlier time.
        old = time.time() - 2 * GRACE_SECONDS
        for path in (self.server.bucket / self.prefix).rglob("*"):
            # the agent's own garbage collection may have removed the file
            with contextlib.suppress(FileNotFoundError):
                os.utime(path, (old, old))
        self.store.collect_garbage(Keep(len(steps)))
        left = self.store.inventory()
        assert set(left.records) == wanted and set(self.store.listing("records").sizes) == {
            one.name for one in wanted
        }
        used = {key for one in left.records.values() for key in one.shards.values()}
        assert set(self.store.listing("manifests").sizes) == used == set(left.manifests)
        chunks = {chunk.digest: chunk for one in left.manifests.values() for chunk in one.chunks}
        assert self.store.listing("chunks").sizes.keys() == chunks.keys()
        for chunk in chunks.values():
            self.store.get_chunk(chunk)


@pytest.fixture
def there(hub: FakeHub, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    monkeypatch.setattr(remote, "S3", Impatient)
    proxy = FaultProxy(int(server.endpoint.rpartition(":")[2]))
    found = Remote(hub, server, proxy, f"clusters/{uuid4()}", threading.Event())
    yield found
    found.never.set()
    proxy.close()


async def saved(ranks: list[Rank], step: int, *tiers: Tier) -> None:
    for rank in ranks:
        assert (await rank.save(step))["type"] == "sealed"
    for tier in tiers:
        for rank in ranks:
            await rank.stands(tier, 1, step)


async def restores(job: MemoryJob, members: list[tuple[str, Host]], step: int) -> None:
    """Form incarnation 2 on empty nodes, and check that its ranks restore the state of `step`."""
    for rank in await job.form(2, members):
        answer = await rank.restore()
        assert answer["generation"] == [1, step], answer.body
        for shard in (0, 1):
            assert await rank.read(str(shard)) == state(step, shard)


@dataclass(frozen=True)
class Trouble:
    """A fault, and the requests to which a test lets the proxy apply it."""

    fault: Callable[[Remote], Fault]
    method: str
    path: str
    times: int


def always(fault: Fault) -> Callable[[Remote], Fault]:
    return lambda there: fault


def stalls(there: Remote) -> Fault:
    return fault_proxy.held(there.never)


SAVING = {
    "500": Trouble(always(fault_proxy.refuse(500, "InternalError")), "PUT", "", 6),
    "503": Trouble(always(fault_proxy.refuse(503)), "", "", 6),
    "a request is lost": Trouble(always(fault_proxy.drop), "", "", 6),
    "a put is reset in its middle": Trouble(always(fault_proxy.tear), "PUT", "/chunks/", 4),
    "a manifest is reset in its middle": Trouble(always(fault_proxy.tear), "PUT", "/manifests/", 2),
    "the commit is reset in its middle": Trouble(always(fault_proxy.tear), "PUT", "/records/", 3),
    "no answer for too long": Trouble(stalls, "PUT", "/chunks/", 2),
    "the commit stands and its answer does not come": Trouble(stalls, "PUT", "/records/", 3),
    "answers to puts are lost": Trouble(always(fault_proxy.lose), "PUT", "", 6),
    "the answer to the commit is lost": Trouble(always(fault_proxy.lose), "PUT", "/records/", 3),
    "an answer is cut": Trouble(always(fault_proxy.cut), "GET", "", 6),
    "each put comes twice": Trouble(always(fault_proxy.duplicate), "PUT", "", 1_000),
    "it lists late": Trouble(always(fault_proxy.empty_list), "GET", "list-type", 12),
    "the credentials expire": Trouble(always(fault_proxy.refuse(403, "ExpiredToken")), "", "", 3),
}


@pytest.mark.parametrize("trouble", SAVING.values(), ids=SAVING.keys())
async def test_a_generation_is_stored_once_despite_transient_faults(
    make_host: HostMaker, job: MemoryJob, there: Remote, trouble: Trouble
) -> None:
    one, two, three, four = [await make_host(name) for name in ("one", "two", "three", "four")]
    await there.send_store(one, two, three, four)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 10, Tier.PEER, Tier.REMOTE)
    rule = there.proxy.inject(trouble.fault(there), trouble.method, trouble.path, trouble.times)
    await saved(ranks, 20, Tier.PEER, Tier.REMOTE)
    assert rule.fired
    there.proxy.heal()
    await there.is_clean(10, 20)
    await one.stop()
    await two.stop()
    await restores(job, [(C, three), (D, four)], 20)


READING = {
    "503": Trouble(always(fault_proxy.refuse(503)), "", "", 6),
    "a request is lost": Trouble(always(fault_proxy.drop), "GET", "", 6),
    "no answer for too long": Trouble(stalls, "GET", "/chunks/", 2),
    "a chunk is cut": Trouble(always(fault_proxy.cut), "GET", "/chunks/", 6),
    "a bit of a chunk is flipped": Trouble(always(fault_proxy.flip), "GET", "/chunks/", 1),
    "a bit of a record is flipped": Trouble(always(fault_proxy.flip), "GET", "/records/gen-1-20", 1_000),
}


@pytest.mark.parametrize("trouble", READING.values(), ids=READING.keys())
async def test_a_restore_returns_the_saved_state_despite_transient_faults(
    make_host: HostMaker, job: MemoryJob, there: Remote, trouble: Trouble
) -> None:
    job.copies = 0
    one, two, three, four = [await make_host(name) for name in ("one", "two", "three", "four")]
    await there.send_store(one, two, three, four)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 10, Tier.REMOTE)
    await saved(ranks, 20, Tier.REMOTE)
    await one.stop()
    await two.stop()
    rule = there.proxy.inject(trouble.fault(there), trouble.method, trouble.path, trouble.times)
    # If a record is unreadable, the agent restores the previous generation instead.
    step = 10 if "/records/" in trouble.path else 20
    await restores(job, [(C, three), (D, four)], step)
    assert rule.fired


async def test_refused_credentials_are_reported_and_renewed(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, there: Remote
) -> None:
    one, two, three, four = [await make_host(name) for name in ("one", "two", "three", "four")]
    await there.send_store(one, two, three, four)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 10, Tier.PEER, Tier.REMOTE)
    await there.send_store(one, two, secret="of yesterday")
    await saved(ranks, 20, Tier.PEER)
    for uid in (A, B):
        trouble = await hub.trouble(uid, "NOT_STORED")
        assert (
            "gen-1-20" in trouble and "the access key is wrong" in trouble and "of yesterday" not in trouble
        )
    await there.is_clean(10)
    mark = len(hub.messages)
    await there.send_store(one, two)
    for rank in ranks:
        # the limit is long because the pauses between retries grow
        await rank.stands(Tier.REMOTE, 1, 20, 60.0)
    for uid in (A, B):
        await hub.untroubled(uid, mark)
    await there.is_clean(10, 20)
    await one.stop()
    await two.stop()
    await restores(job, [(C, three), (D, four)], 20)


async def test_a_full_store_keeps_its_objects_and_is_reported(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, there: Remote
) -> None:
    one, two, three, four = [await make_host(name) for name in ("one", "two", "three", "four")]
    await there.send_store(one, two, three, four)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 10, Tier.PEER, Tier.REMOTE)
    # Refuse only the writes of manifests. The store behaves as if it had become full after the upload of the
    # chunks.
    there.proxy.inject(fault_proxy.refuse(507, "InsufficientStorage"), "PUT", "/manifests/")
    await saved(ranks, 20, Tier.PEER)
    for uid in (A, B):
        assert "the store is full; make room" in await hub.trouble(uid, "NOT_STORED")
    await one.stop()
    await two.stop()
    await there.is_clean(10)
    there.proxy.heal()
    await restores(job, [(C, three), (D, four)], 10)


async def test_objects_lost_before_the_commit_are_sent_again(
    make_host: HostMaker, job: MemoryJob, there: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three, four = [await make_host(name) for name in ("one", "two", "three", "four")]
    await there.send_store(one, two, three, four)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 10, Tier.PEER, Tier.REMOTE)
    monkeypatch.setattr(commit_client, "COMMIT_SECONDS", 3.0)
    there.proxy.inject(fault_proxy.refuse(503), "PUT", "/records/")
    await saved(ranks, 20, Tier.PEER)
    await eventually(lambda: any(one.path.endswith("/records/gen-1-20") for one in there.proxy.seen))
    for path in (there.server.bucket / there.prefix).glob("*/*/chunks/*"):
        path.unlink()
    there.proxy.heal()
    for rank in ranks:
        # The limit is long because each slot retries after increasing pauses.
        await rank.stands(Tier.REMOTE, 1, 20, 3 * TIMEOUT)
    await one.stop()
    await two.stop()
    await restores(job, [(C, three), (D, four)], 20)


async def test_a_store_that_ignores_conditions_gets_no_commits(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, there: Remote
) -> None:
    one, two = await make_host("one"), await make_host("two")
    there.proxy.inject(fault_proxy.without("if-none-match", ACCESS, SECRET))
    await there.send_store(one, probe=True)
    message = await hub.until(lambda node, message: message.HasField("store"))
    assert message.store.reached and not message.store.conditional
    there.conditional = False
    await there.send_store(one, two)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 10, Tier.PEER)
    assert not there.store.inventory().records
    assert not await one.agent.memory_manager.open(JOB).inspect(
        lambda store: [1 for record in store.records.values() if record.remote]
    )


async def test_a_store_that_lost_all_objects_is_reported(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, there: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "SILENT_NODE_SECONDS", 0.5)
    one, two, three, four = [await make_host(name) for name in ("one", "two", "three", "four")]
    await there.send_store(one, two, three, four)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 10, Tier.PEER, Tier.REMOTE)
    await one.stop()
    await two.stop()
    rule = there.proxy.inject(fault_proxy.empty_list, "GET", "list-type")
    again = await job.form(2, [(C, three), (D, four)])
    answer = await again[0].restore()
    assert answer["generation"] is None and answer["lost"]
    assert await hub.trouble(C, "LOST") and rule.fired
    # The store hid its objects from lists. The agents must not have deleted them.
    there.proxy.heal()
    assert set(there.store.inventory().records) == {Generation(1, 10)}
