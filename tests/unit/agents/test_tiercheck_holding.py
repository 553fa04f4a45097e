"""A job's memory as the agent keeps account of it: what others count on, and what was given out for what."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.unit.agents.test_tiercheck_damage import damage
from tests.unit.agents.test_tiercheck_vault import SIZE, named, noise, pieces

from convoy_agents.tiercheck import memory, shares
from convoy_agents.tiercheck.budget import Budget
from convoy_agents.tiercheck.holding import Holding
from convoy_agents.tiercheck.shares import OTHERS
from convoy_agents.tiercheck.vault import BASES, SEGMENTS
from convoy_controllers.checkpoint.generation import Tier
from convoy_controllers.checkpoint.records import Branch, Manifest, Record

LIMIT = 1 << 30


class Tmpfs:
    """Stands in for the job's: counts what lies there, and never gets smaller than that."""

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
    monkeypatch.setattr(memory, "used", found.used)
    monkeypatch.setattr(memory, "left", found.left)
    return found


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def begun(tmpfs: Tmpfs, pool: ThreadPoolExecutor) -> Holding:
    holding = Holding("uid", tmpfs.folder, Budget(LIMIT), pool)
    assert await holding.begin(Branch(1), {}, [])
    return holding


async def come(holding: Holding, manifest: Manifest, giver: str = "") -> None:
    """A shard comes, as a copy that a node counts on, or to be read."""
    for index in await holding.expect(manifest, OTHERS, 0, giver=giver):
        await holding.put(manifest.id, index, pieces(noise(manifest.generation.step))[index])
    await holding.use(lambda vault: vault.admit(manifest.id))


async def stand(holding: Holding, manifest: Manifest) -> None:
    record = Record(manifest.generation, None, {manifest.shard: manifest.id})
    assert await holding.committed(record, 1, Tier.LOCAL, Tier.PEER)


async def test_a_copy_that_has_gone_is_nobody_s_any_more(tmpfs: Tmpfs, pool: ThreadPoolExecutor) -> None:
    """As many are remembered as there are, however many have come."""
    holding = await begun(tmpfs, pool)
    copies = [named(noise(step), step) for step in range(1, 9)]
    for one in copies:
        await come(holding, one, giver="two")
        await stand(holding, one)
    assert await holding.look(lambda vault: set(vault.manifests)) == {copies[-1].id}
    # The first comes once more to be read alone: nobody counts on it now.
    holding.pinned = {copies[0].id}
    await come(holding, copies[0])
    await holding.use(lambda vault: vault.marks.clear())
    await holding.unpin({copy.id for copy in copies})
    assert await holding.look(lambda vault: set(vault.manifests)) == {copies[-1].id}
    assert holding.claimed == {copies[-1].id}


async def test_a_copy_that_was_damaged_while_it_was_read_is_counted_on(
    tmpfs: Tmpfs, pool: ThreadPoolExecutor
) -> None:
    holding = await begun(tmpfs, pool)
    copy = named(noise(1), 1)
    await come(holding, copy, giver="two")
    holding.pinned = {copy.id}
    await holding.use(lambda vault: vault.drop(copy.id))
    await holding.uploaded([])
    await come(holding, copy)
    await holding.unpin({copy.id})
    assert await holding.look(lambda vault: set(vault.manifests)) == {copy.id}


async def full(tmpfs: Tmpfs, pool: ThreadPoolExecutor) -> None:
    """A rank's slots for bases and segments, and a copy."""
    holding = await begun(tmpfs, pool)
    await holding.reserve("10", 2, 50 * SIZE, ["10"], 0)
    await holding.reserve("10", 3, SIZE, ["10"], 0, SEGMENTS)
    await come(holding, named(noise(1), 1), giver="two")


@pytest.mark.parametrize("seed", range(40))
async def test_no_damage_to_what_was_given_out_takes_anything_from_the_job(
    tmpfs: Tmpfs, pool: ThreadPoolExecutor, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job has all it may have: the next agent neither asks for less than there is nor for more."""
    monkeypatch.setattr(shares, "OVERHEAD", 64 * 1024)
    await full(tmpfs, pool)
    limit = tmpfs.size
    path = tmpfs.folder / shares.FILE
    damage(random.Random(seed), path, path.read_bytes())
    # A rank has made its slot longer than it is.
    with (tmpfs.folder / "slots" / "10-0").open("r+b") as file:
        file.truncate(LIMIT)
    budget = Budget(limit)
    holding = Holding("uid", tmpfs.folder, budget, pool)
    await holding.recover()
    assert tmpfs.used(tmpfs.folder) <= budget.shares["uid"] <= limit
    await holding.reserve("10", 2, 50 * SIZE, ["10"], limit, BASES)
    await holding.reserve("10", 3, SIZE, ["10"], limit, SEGMENTS)
    assert tmpfs.used(tmpfs.folder) <= tmpfs.size <= limit
    more = named(noise(2), 2)
    budget.limit = limit + more.size + 8192
    await come(holding, more, giver="two")
    after = Holding("uid", tmpfs.folder, Budget(LIMIT), pool)
    await after.recover()
    assert await after.look(lambda vault: set(vault.manifests)) == {named(noise(1), 1).id, more.id}


async def test_what_was_given_out_is_found_again(tmpfs: Tmpfs, pool: ThreadPoolExecutor) -> None:
    await full(tmpfs, pool)
    found = shares.read(tmpfs.folder)
    assert found == {"slots of 10": 100 * SIZE, "slots of j10": 3 * SIZE, OTHERS: SIZE}
    path = tmpfs.folder / shares.FILE
    path.write_bytes(path.read_bytes().replace(b"1228800", b"9228800"))
    assert shares.read(tmpfs.folder) == found
    path.unlink()
    assert shares.read(tmpfs.folder) == found
    (tmpfs.folder / "state.json").write_bytes(bytes(2 * shares.OVERHEAD))
    assert shares.whole(shares.read(tmpfs.folder)) >= tmpfs.used(tmpfs.folder)
