"""Ten thousand damaged bytes, torn writes and lost files: none is taken for what was saved."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.stores.base import Store
from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tiercheck.stores.volume import Volume
from convoy_agents.tiercheck.vault import Damaged, Facts, Vault
from convoy_controllers.checkpoint import restore
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Branch, Chunk, Inventory, Manifest, Record

SECTOR = 4096
SIZE = 3 * SECTOR + 100
OLD, NEWEST = Generation(1, 5), Generation(1, 7)
MEMORY_CASES, STORE_CASES = 600, 400


def data(generation: Generation, shard: str) -> bytes:
    return random.Random(f"{generation.step}/{shard}").randbytes(SIZE)


def named(generation: Generation, shard: str) -> Manifest:
    whole = data(generation, shard)
    pieces = [whole[at : at + SECTOR] for at in range(0, SIZE, SECTOR)]
    return Manifest(generation, shard, tuple(Chunk(digest.digest(one), len(one)) for one in pieces), SIZE)


def record(generation: Generation) -> Record:
    parent = OLD if generation == NEWEST else None
    shards = {shard: named(generation, shard).id for shard in ("0", "1")}
    return Record(generation, parent, shards, 2, "2.13", 1e9)


def fill_memory(folder: Path) -> None:
    """A rank's own shard in its slots, and another's copies, of two generations."""
    vault = Vault(folder)
    vault.reserve("0", 2, SIZE)
    vault.branch(Branch(1))
    vault.begin(1, {})
    for number, generation in enumerate((OLD, NEWEST)):
        slot = f"0-{number}"
        with vault.slot(slot).open("r+b") as file:
            file.write(data(generation, "0"))
        vault.seal(named(generation, "0"), slot, Facts(2, "2.13", "plan"))
        copy = named(generation, "1")
        for index in vault.expect(copy):
            vault.put(copy.id, index, data(generation, "1")[index * SECTOR :][: copy.chunks[index].length])
        vault.admit(copy.id)
        vault.record(record(generation))
        vault.advance(Tier.LOCAL, generation)


def fill_store(folder: Path) -> None:
    """Both generations on a volume."""
    store = Store(Volume(folder), "ns", "job")
    store.put_branch(Branch(1))
    for generation in (OLD, NEWEST):
        for shard in ("0", "1"):
            one = named(generation, shard)
            for index, chunk in enumerate(one.chunks):
                store.put_chunk(chunk, data(generation, shard)[index * SECTOR :][: chunk.length])
            store.put_manifest(one)
        assert store.commit(record(generation))


def flip(rng: random.Random, content: bytearray) -> None:
    at = rng.randrange(len(content))
    content[at] ^= 1 << rng.randrange(8)


def truncate(rng: random.Random, content: bytearray) -> None:
    del content[rng.randrange(len(content)) :]


def zero_sector(rng: random.Random, content: bytearray) -> None:
    at = SECTOR * rng.randrange(-(-len(content) // SECTOR))
    content[at : at + SECTOR] = bytes(len(content[at : at + SECTOR]))


def stale_tail(rng: random.Random, content: bytearray) -> None:
    at = rng.randrange(len(content))
    content[at:] = data(OLD, "0")[: len(content) - at].ljust(len(content) - at, b"x")


def noise(rng: random.Random, content: bytearray) -> None:
    at = rng.randrange(len(content))
    length = min(len(content) - at, rng.randrange(1, 64))
    content[at : at + length] = rng.randbytes(length)


def longer(rng: random.Random, content: bytearray) -> None:
    content += rng.randbytes(rng.randrange(1, 64))


KINDS: list[Callable[[random.Random, bytearray], None]] = [
    flip,
    flip,
    flip,
    truncate,
    zero_sector,
    stale_tail,
    noise,
    longer,
]


def damage(rng: random.Random, folder: Path, number: int) -> tuple[Path, bytes]:
    """Damages one file, or has it lost; which, and what it held."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = files[number % len(files)]
    before = path.read_bytes()
    if rng.random() < 0.05 or not before:
        path.unlink()
    else:
        content = bytearray(before)
        rng.choice(KINDS)(rng, content)
        path.write_bytes(content)
    return path, before


def restored(
    inventory: Inventory, read: Callable[[Manifest], bytes]
) -> tuple[Record, Mapping[str, bytes]] | None:
    """What an incarnation would go on from, as agents do it: what cannot be read is passed over."""
    broken: set[tuple[str, str]] = set()
    while True:
        found = restore.plan({"here": inventory}, broken)
        if not isinstance(found, restore.Restore):
            return None
        shards = {}
        for shard, links in found.shards.items():
            try:
                shards[shard] = read(links[0].manifest)
            except (Damaged, StoreError, OSError):
                broken.add(("here", links[0].manifest.id))
        if len(shards) == len(found.shards):
            return found.record, shards


def judge(found: tuple[Record, Mapping[str, bytes]] | None, case: str) -> Generation | None:
    """Right bytes of a generation that was committed, with what was said of it, or nothing at all."""
    if found is None:
        return None
    one, shards = found
    assert one == record(one.generation), case
    for shard, content in shards.items():
        assert content == data(one.generation, shard), case
    return one.generation


def from_memory(folder: Path) -> tuple[Record, Mapping[str, bytes]] | None:
    vault = Vault(folder)

    def read(manifest: Manifest) -> bytes:
        return b"".join(vault.read(manifest.id, index) for index in range(len(manifest.chunks)))

    return restored(vault.inventory, read)


def from_store(folder: Path) -> tuple[Record, Mapping[str, bytes]] | None:
    store = Store(Volume(folder), "ns", "job", report=lambda what: None)
    return restored(store.inventory(), lambda one: b"".join(map(store.get_chunk, one.chunks)))


@pytest.mark.parametrize(
    "fill, take, cases",
    [(fill_memory, from_memory, MEMORY_CASES), (fill_store, from_store, STORE_CASES)],
    ids=["memory", "store"],
)
@pytest.mark.timeout(300)
def test_no_damage_is_taken_for_what_was_saved(
    tmp_path: Path,
    fill: Callable[[Path], None],
    take: Callable[[Path], tuple[Record, Mapping[str, bytes]] | None],
    cases: int,
) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "now"
    whole.mkdir()
    fill(whole)
    shutil.copytree(whole, folder)
    assert judge(take(folder), "undamaged") == NEWEST
    rng = random.Random(7)
    outcomes = {NEWEST: 0, OLD: 0, None: 0}
    for number in range(cases):
        path, before = damage(rng, folder, number)
        outcomes[judge(take(folder), f"case {number}: {path.relative_to(folder)}")] += 1
        # What a start has thrown away is there again for the next case.
        for one in whole.rglob("*"):
            there = folder / one.relative_to(whole)
            if one.is_file() and (there == path or not there.exists()):
                there.parent.mkdir(parents=True, exist_ok=True)
                there.write_bytes(one.read_bytes())
        assert path.read_bytes() == before
    # The damage was real, and it was survived.
    assert outcomes[OLD] > cases // 10 and outcomes[NEWEST] > cases // 10, outcomes
