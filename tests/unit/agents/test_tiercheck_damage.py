"""Tests of damaged bytes, half-written files and lost files in every tier. A restore must never return
damaged bytes.

Each case damages one file in a node's memory, in transit to another node, or in a store. The files are
buffers, copies, journal segments, manifests, records, branches and watermarks. Then the case compares the
restored bytes with the saved bytes. @(OLD, BASE, NEWEST) Three generations: two full saves, and a journal
segment that extends the second full save.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.cases import cases

from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.buffers import SEGMENTS
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.shard_record import ShardMetadata
from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.tiercheck.stores.volume import Volume
from convoy_controllers.checkpoint import records, restore
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import (
    Branch,
    Chunk,
    Inventory,
    MalformedError,
    Manifest,
    Record,
)

SECTOR, PAGE = 512, 4096
SIZE = 3 * PAGE + 100
OLD, BASE, NEWEST = Generation(1, 5), Generation(1, 7), Generation(1, 8)
"""Two full saves, and a journal segment that extends the second."""
MEMORY_CASES, STORE_CASES, WIRE_CASES, TEXT_CASES = cases(400), cases(300), cases(300), cases(300)


@functools.cache
def data(generation: Generation, shard: str) -> bytes:
    return random.Random(f"{generation.step}/{shard}").randbytes(SIZE)


def piece(generation: Generation, shard: str, index: int) -> bytes:
    return data(generation, shard)[index * PAGE : (index + 1) * PAGE]


@functools.cache
def named(generation: Generation, shard: str) -> Manifest:
    pieces = [piece(generation, shard, index) for index in range(-(-SIZE // PAGE))]
    extends = named(BASE, shard).id if generation == NEWEST else None
    chunks = tuple(Chunk(digest.digest(one), len(one)) for one in pieces)
    return Manifest(generation, shard, chunks, SIZE, extends=extends)


@functools.cache
def record(generation: Generation) -> Record:
    parent = {OLD: None, BASE: OLD, NEWEST: BASE}[generation]
    shards = {shard: named(generation, shard).id for shard in ("0", "1")}
    return Record(generation, parent, shards, 2, "2.13", 1e9)


def fill_memory(folder: Path) -> None:
    """Write all generations to a ShardStore: the shards of rank 0 in buffers, and copies of the shards of
    rank 1.
    """
    store = ShardStore(folder)
    buffers = [*store.reserve("0", 2, SIZE), *store.reserve("0", 1, SIZE, kind=SEGMENTS)]
    store.add_branch(Branch(1))
    store.start_incarnation(1, {})
    for buffer, generation in zip(buffers, (OLD, BASE, NEWEST), strict=True):
        with store.buffers.path(buffer).open("r+b") as file:
            file.write(data(generation, "0"))
        store.seal(named(generation, "0"), buffer, ShardMetadata(2, "2.13", "plan"))
        copy = named(generation, "1")
        for index in store.expect(copy):
            store.incoming.put(copy.id, index, piece(generation, "1", index))
        store.admit(copy.id)
        store.add_record(record(generation))
        store.advance(Tier.LOCAL, generation)


def fill_store(folder: Path) -> None:
    """Write all generations to a store on a volume."""
    store = Store(Volume(folder), "ns", "job")
    store.put_branch(Branch(1))
    for generation in (OLD, BASE, NEWEST):
        for shard in ("0", "1"):
            one = named(generation, shard)
            for index, chunk in enumerate(one.chunks):
                store.put_chunk(chunk, piece(generation, shard, index))
            store.put_manifest(one)
        assert store.commit(record(generation))


def flip(rng: random.Random, content: bytearray) -> None:
    at = rng.randrange(len(content))
    content[at] ^= 1 << rng.randrange(8)


def truncate(rng: random.Random, content: bytearray) -> None:
    del content[rng.randrange(len(content)) :]


def random_boundary(rng: random.Random, content: bytearray) -> int:
    """Return the offset of a random sector or page in `content`."""
    size = rng.choice((SECTOR, PAGE))
    return size * rng.randrange(-(-len(content) // size))


def truncate_at_border(rng: random.Random, content: bytearray) -> None:
    del content[random_boundary(rng, content) :]


def zero_sector(rng: random.Random, content: bytearray) -> None:
    at, size = random_boundary(rng, content), rng.choice((SECTOR, PAGE))
    content[at : at + size] = bytes(len(content[at : at + size]))


def zero_tail(rng: random.Random, content: bytearray) -> None:
    at = random_boundary(rng, content)
    content[at:] = bytes(len(content) - at)


def stale_tail(rng: random.Random, content: bytearray) -> None:
    at = rng.choice((random_boundary(rng, content), rng.randrange(len(content))))
    content[at:] = data(OLD, "0")[at : len(content)].ljust(len(content) - at, b"x")


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
    truncate_at_border,
    zero_sector,
    zero_tail,
    stale_tail,
    noise,
    longer,
]


def damaged_bytes(rng: random.Random, content: bytes) -> bytes:
    """Return a randomly damaged version of `content`, which always differs from it."""
    while True:
        found = bytearray(content)
        rng.choice(KINDS)(rng, found)
        if found != content:
            return bytes(found)


def damage(rng: random.Random, path: Path, before: bytes) -> None:
    """Damage the file at `path`, whose content is `before`, or remove it."""
    if rng.random() < 0.05 or not before:
        path.unlink()
    else:
        path.write_bytes(damaged_bytes(rng, before))


Shards = Mapping[str, list[bytes]]
"""For each shard's name: the bytes of its full save, then the bytes of each segment that extends it."""
Found = tuple[Record, Shards] | None


def restored(inventory: Inventory, read: Callable[[Manifest], bytes]) -> Found:
    """Return the record and the bytes that an incarnation would restore. Skip each generation that has an
    unreadable shard, as an agent does.
    """
    broken: set[tuple[str, str]] = set()
    while True:
        found = restore.plan({"here": inventory}, broken)
        if not isinstance(found, restore.Restore):
            return None
        shards: dict[str, list[bytes]] = {}
        known = len(broken)
        for shard, links in found.shards.items():
            for link in links:
                try:
                    shards.setdefault(shard, []).append(read(link.manifest))
                except (Damaged, StoreError, OSError):
                    broken.add(("here", link.manifest.id))
        if len(broken) == known:
            return found.record, shards


def check_restored(found: Found, case: str) -> Generation | None:
    """Check that the bytes in `found` are those that were saved in a committed generation. Return this
    generation; None if nothing was restored.
    """
    if found is None:
        return None
    one, shards = found
    assert one == record(one.generation), case
    chain = [BASE, NEWEST] if one.generation == NEWEST else [one.generation]
    assert shards == {shard: [data(link, shard) for link in chain] for shard in ("0", "1")}, case
    return one.generation


def from_memory(folder: Path) -> Found:
    store = ShardStore(folder)

    def read(manifest: Manifest) -> bytes:
        return b"".join(store.read(manifest.id, index) for index in range(len(manifest.chunks)))

    return restored(store.inventory, read)


def from_store(folder: Path) -> Found:
    store = Store(Volume(folder), "ns", "job", report=lambda what: None)
    return restored(store.inventory(), lambda one: b"".join(map(store.get_chunk, one.chunks)))


@pytest.mark.parametrize(
    "fill, take, count",
    [(fill_memory, from_memory, MEMORY_CASES), (fill_store, from_store, STORE_CASES)],
    ids=["memory", "store"],
)
@pytest.mark.timeout(cases(300))
def test_damaged_bytes_are_never_restored(
    tmp_path: Path, fill: Callable[[Path], None], take: Callable[[Path], Found], count: int
) -> None:
    fill(tmp_path)
    whole = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    assert check_restored(take(tmp_path), "undamaged") == NEWEST
    rng = random.Random(7)
    outcomes: dict[Generation | None, int] = {NEWEST: 0, BASE: 0, OLD: 0, None: 0}
    for number in range(count):
        path = list(whole)[number % len(whole)]
        damage(rng, path, whole[path])
        outcomes[check_restored(take(tmp_path), f"case {number}: {path.relative_to(tmp_path)}")] += 1
        # Repair the files that this case damaged or dropped, for the next case.
        for one, content in whole.items():
            if one == path or not one.exists():
                one.write_bytes(content)
    # If many cases restore an older generation, the damage had an effect. Every case must restore some
    # generation.
    assert min(outcomes[one] for one in (NEWEST, BASE, OLD)) > count // 20 and not outcomes[None], outcomes


@pytest.mark.timeout(cases(300))
def test_damage_in_transit_to_another_node_is_refused(tmp_path: Path) -> None:
    """Send a chunk that is damaged, is empty, or belongs to another shard. The store must refuse it and
    still want the chunk.
    """
    store = ShardStore(tmp_path)
    shards = [named(generation, shard) for generation in (OLD, BASE, NEWEST) for shard in ("0", "1")]
    rng = random.Random(8)
    for case in range(WIRE_CASES):
        manifest = rng.choice(shards)
        wanted = store.expect(manifest)
        index = rng.choice(wanted)
        right = piece(manifest.generation, manifest.shard, index)
        other = rng.choice([one for one in shards if one != manifest])
        sent = rng.choice((damaged_bytes(rng, right), piece(other.generation, other.shard, index), b""))
        with pytest.raises(Damaged):
            store.incoming.put(manifest.id, index, sent)
        with pytest.raises(Damaged):
            store.admit(manifest.id)
        assert store.expect(manifest) == wanted, case
        store.incoming.drop(manifest.id)
    assert not store.manifests


@pytest.mark.timeout(cases(300))
def test_a_damaged_manifest_never_has_the_id_of_the_original() -> None:
    rng = random.Random(9)
    for case in range(TEXT_CASES):
        one = named(rng.choice((OLD, BASE, NEWEST)), rng.choice("01"))
        try:
            found = records.parse_manifest(damaged_bytes(rng, one.text))
        except (MalformedError, RecursionError):
            continue
        assert found.id != one.id, case
