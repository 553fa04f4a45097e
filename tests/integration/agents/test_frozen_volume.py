"""Tests of a CheckpointStore on a volume whose file system hangs, such as an unresponsive NFS server."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration import freezing
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, eventually
from tests.integration.agents.memory_job import JOB, MemoryJob, Rank, reads, saved, state
from tests.integration.agents.test_remote_volume import CLAIM, PART, USE, mount, names, send_store, tried

from convoy_agents.tiercheck import trouble_reporter
from convoy_agents.tiercheck.stores import calls
from convoy_agents.tiercheck.stores.garbage_collection import GRACE_SECONDS
from convoy_agents.tiercheck.stores.part import FOLDERS
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.tiercheck.stores.volume import Volume
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.retention import Keep

A, B, C, D, E = "aaaa-1111", "bbbb-2222", "cccc-3333", "dddd-4444", "eeee-5555"
OTHER = {"claim": "other", "name": "other"}
pytestmark = pytest.mark.timeout(180)
SILENT = f"claim {CLAIM}, folder {PART}: it does not answer within"
TIMEOUT = 40.0
"""Maximum seconds to wait for an upload. It is longer than the longest pause between two retries."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        yield Path(name)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield the folder that backs the volume."""
    if os.geteuid():
        pytest.skip("mounts need root")
    with freezing.disk(tmp_path, 256) as made:
        yield made


@pytest.fixture
def job(hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryJob:
    monkeypatch.setattr(calls, "ANSWER_SECONDS", 1.5)
    monkeypatch.setattr(trouble_reporter, "REPORT_AFTER_SECONDS", 1.0)
    return MemoryJob(hub, folder, store=hub_pb2.StoreUse(**USE))


def is_clean(disk: Path, *steps: int) -> None:
    """Collect garbage, then check that the store contains exactly these generations of incarnation 1, each
    complete.
    """
    store = Store(Volume(disk, PART), "default", JOB)
    old = time.time() - 2 * GRACE_SECONDS
    for path in (disk / PART).rglob("*"):
        # the agent's own garbage collection may have removed the file
        with contextlib.suppress(FileNotFoundError):
            os.utime(path, (old, old))
    store.collect_garbage(Keep(len(steps)))
    left = store.inventory()
    assert set(left.records) == {Generation(1, step) for step in steps}
    used = {key for one in left.records.values() for key in one.shards.values()}
    assert store.listing("manifests").sizes.keys() == used == set(left.manifests)
    chunks = {chunk.digest: chunk for one in left.manifests.values() for chunk in one.chunks}
    assert store.listing("chunks").sizes.keys() == chunks.keys()
    for chunk in chunks.values():
        store.get_chunk(chunk)
    assert not any(store.listing(name).unfinished for name in FOLDERS)


async def stored(ranks: list[Rank], step: int) -> None:
    for rank in ranks:
        await rank.stands(Tier.REMOTE, 1, step, TIMEOUT)


async def test_saves_continue_while_the_disk_hangs_and_are_stored_afterwards(
    make_host: HostMaker, hub: FakeHub, folder: Path, job: MemoryJob, disk: Path, tmp_path: Path
) -> None:
    one, two, three, four = [await make_host(name) for name in ("one", "two", "three", "four")]
    mount(disk, one, two, three, four)
    await send_store(hub, one, two, three, four)
    (other := tmp_path / "other").mkdir()
    mount(other, one, claim=OTHER["claim"])
    await send_store(hub, one, **OTHER)
    neighbour = MemoryJob(hub, folder, 0, store=hub_pb2.StoreUse(**{**USE, "name": "other"}), name="other")
    beside = await neighbour.start_incarnation(1, [(E, one)])
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10, Tier.LOCAL, Tier.PEER, Tier.REMOTE)
    with freezing.frozen(disk):
        await saved(ranks, 1, 20, Tier.LOCAL, Tier.PEER)
        assert SILENT in await hub.trouble(A, "NOT_STORED")
        mark = len(hub.messages)
        report = await tried(hub, one)
        assert not report.reached and SILENT in report.message
        await saved(ranks, 1, 30, Tier.LOCAL, Tier.PEER)
        # The store on another volume must still be usable by the same agent.
        await saved(beside, 1, 10, Tier.REMOTE)
        assert names(disk, "records") == {"gen-1-10"}
    await stored(ranks, 30)
    await hub.untroubled(A, mark)
    assert (await tried(hub, one)).reached
    await one.stop()
    await two.stop()
    # Wait for threads that hung, because they may still write temporary files.
    await eventually(lambda: not any(path.name.startswith(".") for path in disk.rglob("*")))
    again = await job.form(2, [(C, three), (D, four)])
    for shards in await reads(again):
        assert shards == {"0": state(30, 0), "1": state(30, 1)}
    is_clean(disk, 10, 30)


async def test_an_incarnation_restores_from_memory_while_the_disk_hangs(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, disk: Path
) -> None:
    one, two = await make_host("one"), await make_host("two")
    mount(disk, one, two)
    await send_store(hub, one, two)
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10, Tier.LOCAL, Tier.PEER, Tier.REMOTE)
    with freezing.frozen(disk):
        again = await job.start_incarnation(2, [(A, one), (B, two)])
        for number, rank in enumerate(again):
            assert (await rank.restore())["generation"] == [1, 10]
            assert await rank.read(str(number)) == state(10, number)
        await saved(again, 2, 20, Tier.LOCAL, Tier.PEER)
        assert names(disk, "records") == {"gen-1-10"}
    for rank in again:
        await rank.stands(Tier.REMOTE, 2, 20, TIMEOUT)
    assert names(disk, "records") == {"gen-1-10", "gen-2-20"}
