"""Tests of garbage collection while other agents commit."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from tests.unit.agents.stores.places import (
    HOME,
    Place,
    chunk_of,
    noise,
    put,
    record_of,
    saved,
    shard,
)

from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tiercheck.stores.garbage_collection import DELETE_SECONDS, MARKER_SECONDS
from convoy_agents.tiercheck.stores.upload import upload
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Branch
from convoy_controllers.checkpoint.retention import Garbage, Keep


def test_a_collection_deletes_only_obsolete_objects_past_the_grace_period(place: Place) -> None:
    store = place.store()
    saved(store, 1, noise(1), noise(2))
    base = saved(store, 2, noise(2), noise(3), parent=1)
    saved(store, 3, noise(4), parent=2, extends=base.shards["0"])
    put(store, shard(9, [noise(9)], incarnation=0), [noise(9)])
    before = place.keys()
    assert store.collect_garbage(Keep(last=1)).records == (Generation(1, 1), Generation(1, 2))
    assert place.keys() == before - {f"{HOME}/records/gen-1-1", f"{HOME}/records/gen-1-2"}, "all is young"
    place.age_all()
    store.collect_garbage(Keep(last=1))
    kept = {chunk_of(noise(number)).digest for number in (2, 3, 4)}
    assert place.held("chunks") == kept, "the base of a journal stays"
    assert len(place.held("manifests")) == 2
    assert place.keys() == {
        f"{HOME}/{folder}/{name}"
        for folder in ("chunks", "manifests", "records")
        for name in place.held(folder)
    }
    saved(store, 4, noise(5), parent=3)
    place.age_all()
    store.collect_garbage(Keep(last=1))
    assert place.held("records") == {"gen-1-4"}
    assert place.held("chunks") == {chunk_of(noise(5)).digest}
    assert len(place.keys()) == 3, "nothing else stays"


def test_obsolete_branches_are_deleted(place: Place) -> None:
    store = place.store()
    store.put_branch(Branch(1))
    store.put_branch(Branch(2, decided=False))
    assert store.delete(Garbage(branches=(1, 2))).branches == (1, 2)
    assert not place.keys()


def test_a_chunk_reused_during_a_collection_is_not_deleted(place: Place) -> None:
    store = place.store()
    saved(store, 1, noise(1), noise(2))
    saved(store, 2, noise(3), parent=1)
    place.age_all()
    garbage = Garbage(
        chunks=frozenset(chunk_of(noise(number)).digest for number in (1, 2)),
        manifests=frozenset({shard(1, [noise(1), noise(2)]).id}),
    )
    done = upload(store, shard(3, [noise(1)]), lambda index: noise(1), stop=threading.Event())
    assert (done.sent_bytes, done.skipped_bytes) == (0, 300)
    deleted = store.delete(replace(garbage, records=(Generation(1, 1),)))
    assert deleted.chunks == {chunk_of(noise(2)).digest}
    assert store.get_chunk(chunk_of(noise(1))) == noise(1)


def test_a_commit_touches_its_chunks_and_manifests(place: Place) -> None:
    store = place.store()
    manifest = put(store, shard(1, [noise(1), noise(2)]), [noise(1), noise(2)])
    place.age_all()
    assert store.commit(record_of(manifest))
    assert set(store.reusable(store.chunks()).values()) == {True}
    assert store.delete(Garbage(manifests=frozenset({manifest.id}))).manifests == set()


def test_a_delete_request_keeps_objects_in_use(place: Place) -> None:
    store = place.store()
    saved(store, 1, noise(1))
    place.age_all()
    before = place.keys()
    deleted = store.delete(
        Garbage(manifests=frozenset(place.held("manifests")), chunks=frozenset(place.held("chunks")))
    )
    assert deleted == Garbage() and place.keys() == before


def test_chunks_stay_while_a_manifest_in_use_cannot_be_read(place: Place) -> None:
    store = place.store()
    record = saved(store, 1, noise(1))
    place.age_all()
    key = f"{HOME}/manifests/{record.shards['0']}"
    place.spoil(key, b"{")
    place.age_all()
    store.collect_garbage(Keep(last=1))
    assert place.held("chunks")
    store.put_manifest(shard(1, [noise(1)]))
    assert store.get_chunk(chunk_of(noise(1))) == noise(1)


def test_a_commit_waits_until_the_deletion_marker_expires(place: Place) -> None:
    store = place.store()
    manifest = put(store, shard(1, [noise(1)]), [noise(1)])
    word = f"{HOME}/deletions/0123456789abcdef"
    place.blobs.put(word, b"")
    with pytest.raises(StoreError, match="garbage collection is running") as refused:
        store.commit(record_of(manifest))
    assert refused.value.retriable and not place.held("records")
    place.age(word, MARKER_SECONDS + 2)
    assert store.commit(record_of(manifest))
    place.age(word, MARKER_SECONDS)
    store.delete(Garbage())
    assert not place.held("deletions")


def test_a_collection_without_garbage_writes_no_marker(place: Place) -> None:
    """An agent may die during a collection. The job's next agent must then wait until the marker expires.
    So a collection that has nothing to delete must write no marker.
    """
    touched: list[str] = []

    class RecordingBlobs(type(place.blobs)):  # type: ignore[misc]
        def put(self, key: str, data: bytes) -> None:
            touched.append(key)
            super().put(key, data)

    store = place.store()
    for step in (1, 2):
        manifest = put(store, shard(step, [noise(step)]), [noise(step)])
        assert store.commit(record_of(manifest))
    place.blobs.__class__ = RecordingBlobs
    assert place.store().collect_garbage(Keep(last=1)).records == (Generation(1, 1),)
    assert not touched
    place.age_all()
    place.store().collect_garbage(Keep(last=1))
    assert [key for key in touched if "/deletions/" in key]


def test_a_collection_with_listings_longer_than_its_marker_deletes_nothing(place: Place) -> None:
    ticks = iter([0.0, MARKER_SECONDS / 2 + 1])
    store = place.store(clock=lambda: next(ticks))
    store.put_chunk(chunk_of(noise(1)), noise(1))
    place.age_all()
    with pytest.raises(StoreError, match="takes 151 s") as failed:
        store.delete(Garbage(chunks=frozenset(place.held("chunks"))))
    assert failed.value.retriable and place.held("chunks")


def test_a_collection_stops_at_its_time_limit_and_the_next_continues(place: Place) -> None:
    ticks = iter([0.0, 0.0, 1.0, DELETE_SECONDS, DELETE_SECONDS])
    store = place.store(clock=lambda: next(ticks))
    for number in range(3):
        store.put_chunk(chunk_of(noise(number)), noise(number))
    place.age_all()
    everything = frozenset(place.held("chunks"))
    assert len(store.delete(Garbage(chunks=everything)).chunks) == 1
    assert len(place.held("chunks")) == 2
    assert place.store().delete(Garbage(chunks=everything)).chunks == everything
    assert not place.keys()
