"""Tests of jobs that start from another job's checkpoint in the store."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.agents.stores.places import noise, put, record_of, shard

from convoy_agents.tiercheck.stores.adopt import adopt
from convoy_agents.tiercheck.stores.errors import Damaged, Stopped, StoreError
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.tiercheck.stores.volume import Volume
from convoy_controllers.checkpoint import restore
from convoy_controllers.checkpoint.generation import Generation

STOP = threading.Event()


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Store, Store]:
    blobs = Volume(tmp_path)
    return Store(blobs, "team", "source"), Store(blobs, "team", "target")


def full(store: Store, step: int, incarnation: int = 3, ranks: int = 2) -> list[bytes]:
    """Save a generation with two chunks for each rank. Return the bytes of each shard."""
    pieces = {name: [noise((step, name, 1)), noise((step, name, 2))] for name in map(str, range(ranks))}
    manifests = [
        put(store, shard(step, found, name, incarnation=incarnation), found) for name, found in pieces.items()
    ]
    assert store.commit(replace(record_of(*manifests), world=ranks, torch="2.13"))
    return [b"".join(found) for found in pieces.values()]


def restored(store: Store) -> tuple[restore.Restore, list[bytes]]:
    """Return the generation that the job would restore. Also return, for each shard, the bytes of its full
    save and its segments.
    """
    found = restore.plan({restore.REMOTE: store.inventory()})
    assert isinstance(found, restore.Restore)
    chunks = [
        [chunk for link in links for chunk in link.manifest.chunks]
        for _, links in sorted(found.shards.items())
    ]
    return found, [b"".join(map(store.get_chunk, one)) for one in chunks]


def test_the_newest_generation_is_copied_and_outlives_its_source(
    stores: tuple[Store, Store], tmp_path: Path
) -> None:
    source, target = stores
    full(source, 10)
    newest = full(source, 20)
    done = adopt(source, target, 0, STOP)
    assert done.source == Generation(3, 20) and done.record.generation == Generation(0, 20)
    shutil.rmtree(tmp_path / "team" / "source")
    found, data = restored(target)
    assert data == newest
    record = found.record
    assert (record.generation, record.world, record.torch, record.parent) == (
        Generation(0, 20),
        2,
        "2.13",
        None,
    )


def test_adopt_copies_the_requested_step(stores: tuple[Store, Store]) -> None:
    source, target = stores
    older = full(source, 10)
    full(source, 20)
    adopt(source, target, 10, STOP)
    found, data = restored(target)
    assert found.record.generation == Generation(0, 10) and data == older


def test_a_journal_is_adopted_with_its_base(stores: tuple[Store, Store]) -> None:
    source, target = stores
    bases = [put(source, shard(10, [noise(name)], name), [noise(name)]) for name in ("0", "1")]
    assert source.commit(record_of(*bases))
    heads = [
        put(
            source, shard(11, [noise(("j", one.shard))], one.shard, extends=one.id), [noise(("j", one.shard))]
        )
        for one in bases
    ]
    assert source.commit(record_of(*heads, parent=Generation(1, 10)))
    adopt(source, target, 0, STOP)
    found, data = restored(target)
    assert found.record.generation == Generation(0, 11)
    assert data == [noise("0") + noise(("j", "0")), noise("1") + noise(("j", "1"))]


def test_an_interrupted_adoption_is_resumed(stores: tuple[Store, Store]) -> None:
    source, target = stores
    newest = full(source, 20)
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        adopt(source, target, 0, stop)
    assert not target.inventory().records
    first = adopt(source, target, 0, STOP)
    again = adopt(source, target, 0, STOP)
    assert again.record == first.record and again.sent_bytes == 0
    assert restored(target)[1] == newest


@pytest.mark.parametrize("step", [0, 15])
def test_adopt_fails_without_a_complete_checkpoint(stores: tuple[Store, Store], step: int) -> None:
    source, target = stores
    if step:
        full(source, 10)
    with pytest.raises(StoreError, match="it has no complete checkpoint") as failed:
        adopt(source, target, step, STOP)
    assert not failed.value.retriable and not target.inventory().records


def test_damage_in_the_source_is_not_copied(stores: tuple[Store, Store], tmp_path: Path) -> None:
    source, target = stores
    full(source, 20)
    some = next((tmp_path / "team" / "source" / "chunks").iterdir())
    data = bytearray(some.read_bytes())
    data[7] ^= 1
    some.write_bytes(data)
    with pytest.raises((Damaged, StoreError)):
        adopt(source, target, 0, STOP)
    assert not target.inventory().records
