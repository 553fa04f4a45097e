"""Tests of two records in a job's memory: the shards that are copies for other nodes, and the bytes by
purpose.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.unit.agents.test_tiercheck_damage import damage
from tests.unit.agents.test_tiercheck_shard_store import SIZE, named, noise, pieces

from convoy_agents.tiercheck import memory, shares
from convoy_agents.tiercheck.budget import Budget
from convoy_agents.tiercheck.buffers import BASES, SEGMENTS
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.shares import OTHERS
from convoy_controllers.checkpoint.generation import Tier
from convoy_controllers.checkpoint.records import Branch, Manifest, Record

LIMIT = 1 << 30


class Tmpfs:
    """A fake tmpfs of the job. It counts the bytes of its files, and cannot shrink below this sum."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.size = 0

    def open(self, folder: Path, size: int) -> None:
        assert folder == self.folder
        if size < self.used(folder):
            raise OSError(errno.EINVAL, "it holds more than that")
        self.size = size

    def used(self, folder: Path) -> int:
        return sum(path.stat().st_blocks * 512 for path in self.folder.rglob("*") if path.is_file())

    def left(self, folder: Path) -> int:
        return self.size - self.used(folder)


@pytest.fixture
def tmpfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tmpfs:
    found = Tmpfs(tmp_path)
    monkeypatch.setattr(memory, "open_share", found.open)
    monkeypatch.setattr(memory, "used_bytes", found.used)
    monkeypatch.setattr(memory, "free_bytes", found.left)
    return found


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def open_job_memory(tmpfs: Tmpfs, pool: ThreadPoolExecutor) -> JobMemory:
    job_memory = JobMemory("uid", tmpfs.folder, Budget(LIMIT), pool)
    assert await job_memory.start_incarnation(Branch(1), {}, [])
    return job_memory


async def transfer(job_memory: JobMemory, manifest: Manifest, copy_of: str = "") -> None:
    """Transfer a shard to the job's memory. `copy_of`: the node that sends the shard to have a copy here;
    empty for a shard that is fetched for a restore.
    """
    for index in await job_memory.expect(manifest, OTHERS, 0, copy_of=copy_of):
        await job_memory.put(manifest.id, index, pieces(noise(manifest.generation.step))[index])
    await job_memory.use(lambda store: store.admit(manifest.id))


async def commit(job_memory: JobMemory, manifest: Manifest) -> None:
    record = Record(manifest.generation, None, {manifest.shard: manifest.id})
    assert await job_memory.record_commit(record, 1, Tier.LOCAL, Tier.PEER)


async def test_a_dropped_copy_loses_its_mark(tmpfs: Tmpfs, pool: ThreadPoolExecutor) -> None:
    """Commit eight copies one after the other. Each commit drops the copy before it. Only the last copy may
    then be marked as a copy.
    """
    job_memory = await open_job_memory(tmpfs, pool)
    copies = [named(noise(step), step) for step in range(1, 9)]
    for one in copies:
        await transfer(job_memory, one, copy_of="two")
        await commit(job_memory, one)
    assert await job_memory.inspect(lambda store: set(store.manifests)) == {copies[-1].id}
    # Fetch the first shard again, this time for a restore. It must not be marked as a copy.
    job_memory.uses.pin({copies[0].id})
    await transfer(job_memory, copies[0])
    await job_memory.use(lambda store: store.marks.clear())
    await job_memory.unpin({copy.id for copy in copies})
    assert await job_memory.inspect(lambda store: set(store.manifests)) == {copies[-1].id}
    assert job_memory.uses.copies == {copies[-1].id}


async def test_a_copy_fetched_again_after_damage_is_kept(tmpfs: Tmpfs, pool: ThreadPoolExecutor) -> None:
    job_memory = await open_job_memory(tmpfs, pool)
    copy = named(noise(1), 1)
    await transfer(job_memory, copy, copy_of="two")
    job_memory.uses.pin({copy.id})
    await job_memory.use(lambda store: store.drop(copy.id))
    await job_memory.end_upload([])
    await transfer(job_memory, copy)
    await job_memory.unpin({copy.id})
    assert await job_memory.inspect(lambda store: set(store.manifests)) == {copy.id}


async def fill(tmpfs: Tmpfs, pool: ThreadPoolExecutor) -> None:
    """Fill a job's memory with a rank's buffers for full saves and for segments, and with a copy."""
    job_memory = await open_job_memory(tmpfs, pool)
    await job_memory.reserve("10", 2, 50 * SIZE, ["10"], 0)
    await job_memory.reserve("10", 3, SIZE, ["10"], 0, SEGMENTS)
    await transfer(job_memory, named(noise(1), 1), copy_of="two")


@pytest.mark.parametrize("seed", range(40))
async def test_damage_to_the_shares_file_does_not_shrink_the_job_s_share(
    tmpfs: Tmpfs, pool: ThreadPoolExecutor, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage the file that stores the job's bytes by purpose. The next agent must recover a share that is
    large enough for all existing shards, and not larger than the share before.
    """
    monkeypatch.setattr(shares, "OVERHEAD", 64 * 1024)
    await fill(tmpfs, pool)
    limit = tmpfs.size
    path = tmpfs.folder / shares.FILE
    damage(random.Random(seed), path, path.read_bytes())
    # Make the rank's buffer longer without writing to it. The added length must not count as used memory.
    with (tmpfs.folder / "buffers" / "10-0").open("r+b") as file:
        file.truncate(LIMIT)
    budget = Budget(limit)
    job_memory = JobMemory("uid", tmpfs.folder, budget, pool)
    await job_memory.recover()
    assert tmpfs.used(tmpfs.folder) <= budget.shares["uid"] <= limit
    await job_memory.reserve("10", 2, 50 * SIZE, ["10"], limit, BASES)
    await job_memory.reserve("10", 3, SIZE, ["10"], limit, SEGMENTS)
    assert tmpfs.used(tmpfs.folder) <= tmpfs.size <= limit
    more = named(noise(2), 2)
    budget.limit = limit + more.size + 8192
    await transfer(job_memory, more, copy_of="two")
    after = JobMemory("uid", tmpfs.folder, Budget(LIMIT), pool)
    await after.recover()
    assert await after.inspect(lambda store: set(store.manifests)) == {named(noise(1), 1).id, more.id}


async def test_granted_shares_are_read_back(tmpfs: Tmpfs, pool: ThreadPoolExecutor) -> None:
    await fill(tmpfs, pool)
    found = shares.read(tmpfs.folder)
    assert found == {"buffers of 10": 100 * SIZE, "buffers of j10": 3 * SIZE, OTHERS: SIZE}
    path = tmpfs.folder / shares.FILE
    path.write_bytes(path.read_bytes().replace(b"1228800", b"9228800"))
    assert shares.read(tmpfs.folder) == found
    path.unlink()
    assert shares.read(tmpfs.folder) == found
    (tmpfs.folder / "state.json").write_bytes(bytes(2 * shares.OVERHEAD))
    assert shares.total_size(shares.read(tmpfs.folder)) >= tmpfs.used(tmpfs.folder)
