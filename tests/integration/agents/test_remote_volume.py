"""Tests of agents that upload checkpoints to a volume. The volume may be unmounted, read-only or full."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, eventually
from tests.integration.agents.memory_job import JOB, MemoryJob, Rank, held, reads, saved, state

from convoy_agents.csi import mounts
from convoy_agents.tiercheck import digest, link, remote, trouble_reporter
from convoy_agents.tiercheck.stores import calls
from convoy_agents.tiercheck.stores.blobs import Listing
from convoy_agents.tiercheck.stores.errors import NotMounted, StoreError
from convoy_agents.tiercheck.stores.volume import Volume
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Generation, Tier

A, B, C, D = "aaaa-1111", "bbbb-2222", "cccc-3333", "dddd-4444"
CLAIM = "checkpoints"
PART = "clusters/one"
HOME = Path(PART) / "default" / JOB
USE = {"name": "disk", "every_seconds": 0, "keep_last": 2}
MIB = 2**20
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        yield Path(name)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Return the folder that backs the volume."""
    made = tmp_path / "disk"
    made.mkdir()
    return made


@pytest.fixture
def job(hub: FakeHub, folder: Path) -> MemoryJob:
    return MemoryJob(hub, folder, store=hub_pb2.StoreUse(**USE))


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable encoding, so that every chunk is stored with its full size. Otherwise the stored size would
    depend on measured times.
    """
    monkeypatch.setattr(link, "encoding_pays", lambda costs, ahead: False)


def target(host: Host, claim: str = CLAIM) -> Path:
    """Return the mount point of a claim on a node. Create the folder if necessary."""
    path = host.settings.stores_dir / claim
    path.mkdir(parents=True, exist_ok=True)
    return path


def mount(disk: Path, *hosts: Host, claim: str = CLAIM) -> None:
    for host in hosts:
        subprocess.run(["mount", "--bind", str(disk), str(target(host, claim))], check=True, timeout=20)


async def send_store(
    hub: FakeHub, *hosts: Host, probe: bool = False, name: str = "disk", claim: str = CLAIM
) -> None:
    """Send the settings of a store on a volume to the agents, as the hub does."""
    for host in hosts:
        await hub.until(lambda node, message: node == host.node and message.HasField("hello"))  # noqa: B023
        volume = hub_pb2.ClaimedVolume(claim=claim, path=PART)
        store = hub_pb2.Store(name=name, version="1", volume=volume, conditional=True, probe=probe)
        hub.send(host.node, store=store)


async def tried(hub: FakeHub, host: Host) -> hub_pb2.StoreReport:
    """Let the hub request a probe of the store. Return the agent's report of the result."""
    start = len(hub.messages)
    await send_store(hub, host, probe=True)
    message = await hub.until(lambda node, message: node == host.node and message.HasField("store"), start)
    report: hub_pb2.StoreReport = message.store
    return report


def files(disk: Path) -> list[Path]:
    return [path for path in disk.rglob("*") if path.is_file()]


def names(disk: Path, what: str) -> set[str]:
    folder = disk / HOME / what
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def fill(disk: Path) -> Path:
    """Create a file that uses all free space of the volume, and return its path."""
    ballast = disk / "ballast"
    with pytest.raises(OSError, match="No space"), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(MIB))
    return ballast


async def upload(host: Host, uid: str) -> None:
    """Upload all shards that a node's memory holds of a job. Return when the upload has ended."""
    plan: Any = host.agent.pods.get(uid).state.assignment  # type: ignore[union-attr]
    job_memory = host.agent.memory_manager.open(JOB)
    for key in await job_memory.inspect(lambda store: list(store.manifests)):
        await host.agent.remotes.upload(plan, job_memory, key)


async def test_a_job_is_restored_from_the_volume_after_all_memory_is_lost(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, disk: Path
) -> None:
    one, two, three, four = [await make_host(name) for name in ("one", "two", "three", "four")]
    mount(disk, one, two, three, four)
    await send_store(hub, one, two, three, four)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10, Tier.LOCAL, Tier.PEER, Tier.REMOTE)
    assert names(disk, "records") == {"gen-1-10"}
    await one.stop()
    await two.stop()
    again = await job.form(2, [(C, three), (D, four)])
    for shards in await reads(again):
        assert shards == {"0": state(10, 0), "1": state(10, 1)}
    for rank in again:
        await rank.request(type="restored")
        await rank.reserve()
    await saved(again, 2, 20, Tier.PEER, Tier.REMOTE)
    assert {generation for generation, _ in await held(three)} == {Generation(2, 20)}
    assert names(disk, "records") == {"gen-1-10", "gen-2-20"}


async def test_a_job_resumes_from_another_job_s_checkpoint(
    make_host: HostMaker, hub: FakeHub, folder: Path, job: MemoryJob, disk: Path
) -> None:
    one, two = await make_host("one"), await make_host("two")
    mount(disk, one, two)
    await send_store(hub, one, two)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10, Tier.REMOTE)
    await saved(ranks, 1, 20, Tier.REMOTE)
    use = hub_pb2.StoreUse(**USE, resume_uid=JOB, resume_step=10)
    other = MemoryJob(hub, folder, store=use, name="other")
    begun = await other.form(1, [(C, one), (D, two)])
    for rank in begun:
        assert (await rank.restore())["generation"] == [0, 10]
    for shards in await reads(begun):
        assert shards == {"0": state(10, 0), "1": state(10, 1)}


async def test_obsolete_generations_and_their_old_chunks_are_deleted(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, disk: Path
) -> None:
    one, two = await make_host("one"), await make_host("two")
    mount(disk, one, two)
    await send_store(hub, one, two)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10, Tier.REMOTE)
    first = names(disk, "chunks")
    for step in (20, 30):
        await saved(ranks, 1, step, Tier.REMOTE)
    await eventually(lambda: names(disk, "records") == {"gen-1-20", "gen-1-30"})
    await eventually(lambda: not names(disk, "deletions"))
    assert first <= names(disk, "chunks"), "an upload may just be counting on them"
    for path in files(disk):
        os.utime(path, (path.stat().st_atime - 7200, path.stat().st_mtime - 7200))
    await saved(ranks, 1, 40, Tier.REMOTE)
    await eventually(lambda: names(disk, "records") == {"gen-1-30", "gen-1-40"})
    await eventually(lambda: not names(disk, "chunks") & first)


async def test_an_unmounted_claim_is_reported_and_not_written_to(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, disk: Path
) -> None:
    job.copies = 0
    one = await make_host("one")
    report = await tried(hub, one)
    assert (report.reached, report.unmounted) == (False, True)
    assert CLAIM in report.message and "not mounted" in report.message
    assert not one.settings.stores_dir.exists()
    # The folder exists but is not a mount point, so the claim still counts as unmounted.
    empty = target(one)
    assert (await tried(hub, one)).unmounted
    mount(disk, one)
    assert (await tried(hub, one)).conditional
    (rank,) = await job.start_incarnation(1, [(A, one)])
    mounts.unmount(empty)
    await saved([rank], 1, 10, Tier.LOCAL)
    with pytest.raises(NotMounted):
        await upload(one, A)
    assert "not mounted" in await hub.trouble(A, "NOT_STORED")
    assert not list(empty.iterdir()) and "gen-1-10" not in {path.name for path in files(disk)}
    mount(disk, one)
    await rank.stands(Tier.REMOTE, 1, 10)
    assert names(disk, "records") == {"gen-1-10"} and (await tried(hub, one)).reached


async def test_the_capabilities_of_a_volume_are_reported(
    make_host: HostMaker, hub: FakeHub, disk: Path
) -> None:
    one = await make_host("one")
    mount(disk, one)
    report = await tried(hub, one)
    assert (report.reached, report.conditional, report.checksums, report.unmounted) == (
        True,
        True,
        False,
        False,
    )
    assert not files(disk)


async def test_a_read_only_volume_is_reported(make_host: HostMaker, hub: FakeHub, disk: Path) -> None:
    one = await make_host("one")
    mounts.bind_read_only(disk, target(one))
    report = await tried(hub, one)
    assert (report.reached, report.unmounted) == (False, False)
    assert CLAIM in report.message and "the volume is read-only; mount it for writing" in report.message


async def test_a_full_volume_is_reported_and_used_again_when_space_is_free(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    job.copies = 0
    one = await make_host("one")
    disk = target(one)
    mounts.tmpfs(disk, 64 * MIB)
    await send_store(hub, one)
    (rank,) = await job.start_incarnation(1, [(A, one)])
    ballast = fill(disk)
    await saved([rank], 1, 10, Tier.LOCAL)
    report = await tried(hub, one)
    assert not report.reached and "the volume is full; enlarge it" in report.message
    with pytest.raises(StoreError, match="the volume is full"):
        await upload(one, A)
    assert "the volume is full" in await hub.trouble(A, "NOT_STORED")
    chunks = disk / HOME / "chunks"
    assert not chunks.exists() or not list(chunks.iterdir())
    ballast.unlink()
    await rank.stands(Tier.REMOTE, 1, 10)
    assert names(disk, "records") == {"gen-1-10"}


async def two_old_saves(rank: Rank, disk: Path) -> None:
    """Save steps 10 and 20, so that step 10 becomes obsolete. Then make all files two hours old."""
    for step in (10, 20):
        await saved([rank], 1, step, Tier.REMOTE)
    await eventually(lambda: names(disk, "records") == {"gen-1-20"} and not names(disk, "deletions"))
    for path in files(disk):
        os.utime(path, (path.stat().st_atime - 7200, path.stat().st_mtime - 7200))


@pytest.mark.usefixtures("plain")
async def test_a_volume_full_of_obsolete_generations_is_collected(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    job.copies = 0
    job.store = hub_pb2.StoreUse(name="disk", every_seconds=0, keep_last=1)
    one = await make_host("one")
    disk = target(one)
    mounts.tmpfs(disk, 64 * MIB)
    await send_store(hub, one)
    (rank,) = await job.start_incarnation(1, [(A, one)])
    await two_old_saves(rank, disk)
    ballast = fill(disk)
    # Leave space for small files, but not for chunks.
    os.truncate(ballast, ballast.stat().st_size - MIB // 8)
    await saved([rank], 1, 30, Tier.REMOTE)
    assert "gen-1-30" in names(disk, "records")


@pytest.mark.usefixtures("plain")
async def test_a_volume_that_fills_up_at_the_record_is_collected_once(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.copies = 0
    job.store = hub_pb2.StoreUse(name="disk", every_seconds=0, keep_last=1)
    one = await make_host("one")
    disk = target(one)
    mounts.tmpfs(disk, 64 * MIB)
    fills: list[Path] = []

    class Filling(Volume):
        def create(self, key: str, data: digest.Buffer) -> bool:
            if key.endswith("/records/gen-1-30") and not fills:
                fills.append(fill(disk))
            return super().create(key, data)

    monkeypatch.setattr(remote, "Volume", Filling)
    await send_store(hub, one)
    (rank,) = await job.start_incarnation(1, [(A, one)])
    await two_old_saves(rank, disk)
    mark = len(hub.messages)
    await saved([rank], 1, 30, Tier.REMOTE)
    assert fills and "gen-1-30" in names(disk, "records")
    assert not [1 for _, message in hub.messages[mark:] if "the volume is full" in str(message)]


async def test_a_hung_volume_is_reported_and_used_again_when_it_responds(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "ANSWER_SECONDS", 1.5)
    monkeypatch.setattr(trouble_reporter, "REPORT_AFTER_SECONDS", 1.0)
    hung, over = threading.Event(), threading.Event()

    class Hanging(Volume):
        def names(self, folder: str, *more: Any, **also: Any) -> Listing:
            if hung.is_set():
                over.wait(60)
            return super().names(folder, *more, **also)

    monkeypatch.setattr(remote, "Volume", Hanging)
    job.copies = 0
    one = await make_host("one")
    mount(disk, one)
    await send_store(hub, one)
    (rank,) = await job.start_incarnation(1, [(A, one)])
    hung.set()
    try:
        await saved([rank], 1, 10, Tier.LOCAL)
        trouble = await hub.trouble(A, "NOT_STORED")
        assert f"claim {CLAIM}, folder {PART}: it does not answer within" in trouble
    finally:
        over.set()
    await rank.stands(Tier.REMOTE, 1, 10, 40)
    assert names(disk, "records") == {"gen-1-10"}
