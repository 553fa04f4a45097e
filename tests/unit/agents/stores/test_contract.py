"""Tests of the interface of a store: a volume and an S3 server must behave alike."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.stores.places import (
    HOME,
    RULES,
    Place,
    chunk_of,
    noise,
    put,
    record_of,
    saved,
    shard,
)

from convoy_agents.tiercheck.stores.blobs import MAX_TEXT, Listing
from convoy_agents.tiercheck.stores.calls import ResponseTimer, TimedBlobs
from convoy_agents.tiercheck.stores.errors import Damaged, Missing, StoreError
from convoy_agents.tiercheck.stores.part import FOLDERS
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.tiercheck.stores.upload import upload
from convoy_agents.tiercheck.stores.volume import Volume
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Branch, Inventory, Record
from convoy_controllers.checkpoint.retention import Garbage


def test_a_chunk_round_trips_and_other_bytes_are_refused(place: Place) -> None:
    store, data = place.store(), noise(1)
    chunk = chunk_of(data)
    for wrong in (data[:-1], noise(2)):
        with pytest.raises(Damaged):
            store.put_chunk(chunk, wrong)
    assert not place.keys()
    with pytest.raises(Damaged, match="missing in"):
        store.get_chunk(chunk)
    store.put_chunk(chunk, memoryview(bytearray(data)))
    store.put_chunk(chunk, data)
    assert store.get_chunk(chunk) == data
    assert set(store.chunks()) == {chunk.digest}
    assert place.keys() == {f"{HOME}/chunks/{chunk.digest}"}


@pytest.mark.parametrize("at", [0, 150, 299])
def test_damage_to_a_stored_chunk_is_detected(place: Place, at: int) -> None:
    store, data = place.store(), noise(1)
    chunk = chunk_of(data)
    store.put_chunk(chunk, data)
    for spoilt in (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], data[:at], data + b"\0"):
        place.spoil(f"{HOME}/chunks/{chunk.digest}", spoilt)
        with pytest.raises(Damaged):
            store.get_chunk(chunk)


def test_chunks_are_listed_with_the_time_of_their_put(place: Place) -> None:
    store = place.store()
    first, second = chunk_of(noise(1)), chunk_of(noise(2))
    store.put_chunk(first, noise(1))
    place.age(f"{HOME}/chunks/{first.digest}", 600)
    store.put_chunk(second, noise(2))
    times = store.chunks()
    assert 590 < times[second.digest] - times[first.digest] < 660
    both = [first.digest, second.digest]
    assert store.reusable(both) == {first.digest: False, second.digest: True}
    assert store.touch([first.digest, chunk_of(noise(3)).digest]) == {chunk_of(noise(3)).digest}
    assert store.reusable(both) == {first.digest: True, second.digest: True}
    assert store.get_chunk(first) == noise(1)


def test_a_listing_keeps_only_the_wanted_names(place: Place) -> None:
    """A job may have a thousand times as many objects as a single shard has. A listing for one shard must
    not keep the names of all the job's objects in memory.
    """
    seen: list[Listing] = []

    class RecordingBlobs(TimedBlobs):
        def names(self, *more: Any, **also: Any) -> Listing:
            seen.append(super().names(*more, **also))
            return seen[-1]

    place.blobs = RecordingBlobs(place.blobs, ResponseTimer())
    store = place.store()
    put(store, shard(1, [noise(number) for number in range(9)]), [noise(number) for number in range(9)])
    one, absent = chunk_of(noise(1)).digest, chunk_of(noise(10)).digest
    assert store.reusable([one, absent]) == {one: True}
    assert seen.pop().written.keys() == {one}
    done = upload(
        store, shard(2, [noise(1), noise(10)]), [noise(1), noise(10)].__getitem__, stop=threading.Event()
    )
    assert (done.sent_bytes, done.skipped_bytes) == (300, 300)
    assert seen.pop().sizes.keys() == {one}
    assert len(store.chunks()) == 10


def test_folders_and_sizes_are_listed(place: Place) -> None:
    for key, size in {"a/b/c/x": 3, "a/b/y": 0, "a/d/z": 1, "e/f": 2, "g": 5}.items():
        place.blobs.put(key, bytes(size))
    assert place.blobs.folders("") == {"a", "e"}
    assert place.blobs.folders("a") == {"b", "d"} and place.blobs.folders("a/b") == {"c"}
    assert place.blobs.folders("e") == place.blobs.folders("nothing") == set()
    assert place.blobs.names("a/b/c").sizes == {"x": 3}
    assert place.store().listing("chunks").sizes == {}
    place.store().put_chunk(chunk_of(noise(1)), noise(1))
    assert place.store().listing("chunks").sizes == {chunk_of(noise(1)).digest: 300}


def test_a_commit_needs_all_manifests_and_chunks_and_is_final(place: Place) -> None:
    store = place.store()
    base = shard(1, [noise(1), noise(2)])
    journal = shard(2, [noise(3)], extends=base.id)
    record = record_of(journal)
    with pytest.raises(Missing) as missing:
        store.commit(record)
    assert missing.value.manifests == {journal.id} and not missing.value.retriable
    put(store, journal, [noise(3)])
    with pytest.raises(Missing) as missing:
        store.commit(record)
    assert missing.value.manifests == {base.id}
    store.put_chunk(base.chunks[0], noise(1))
    store.put_manifest(base)
    with pytest.raises(Missing) as missing:
        store.commit(record)
    assert (missing.value.manifests, missing.value.chunks) == (set(), {base.chunks[1].digest})
    assert not place.held("records")
    store.put_chunk(base.chunks[1], noise(2))
    assert store.commit(record)
    assert store.commit(record), "its answer may have been lost"
    assert not store.commit(replace(record, saved=1.0))
    assert store.inventory() == Inventory(
        {record.generation: record}, {}, {base.id: base, journal.id: journal}
    )


def test_one_of_many_concurrent_commits_wins(place: Place) -> None:
    store = place.store()
    manifest = put(store, shard(1, [noise(1)]), [noise(1)])
    rivals = [record_of(manifest, saved=float(number)) for number in range(6)]
    ready = threading.Barrier(len(rivals))

    def commit(record: Record) -> bool:
        ready.wait(20)
        return store.commit(record)

    with ThreadPoolExecutor(len(rivals)) as pool:
        won = [one for one, done in zip(rivals, pool.map(commit, rivals), strict=True) if done]
    assert len(won) == 1
    assert store.inventory().records == {manifest.generation: won[0]}


def test_a_branch_is_decided_once(place: Place) -> None:
    store = place.store()
    undecided = Branch(3, None, decided=False)
    decided = Branch(3, Generation(2, 5))
    assert store.put_branch(undecided)
    assert store.inventory().branches == {3: undecided}
    stored = place.blobs.get(f"{HOME}/branches/3.undecided") or b""
    assert store.put_branch(decided) and store.put_branch(decided)
    assert not store.put_branch(undecided)
    assert not store.put_branch(Branch(3, Generation(1, 1)))
    assert store.inventory().branches == {3: decided}
    # An agent may still be writing an undecided branch while another writes the decision. The undecided
    # branch is then stored last.
    place.blobs.put(f"{HOME}/branches/3.undecided", stored)
    assert store.inventory().branches == {3: decided}


def test_malformed_objects_are_reported_and_skipped(place: Place) -> None:
    store = place.store()
    good = saved(store, 1, noise(1))
    saved(store, 3, noise(3))
    flipped = (place.blobs.get(f"{HOME}/records/gen-1-3") or b"").replace(b'"world":1', b'"world":3')
    place.blobs.remove(f"{HOME}/records/gen-1-3")
    store.put_branch(Branch(1))
    whole = store.inventory()
    text = place.blobs.get(f"{HOME}/records/gen-1-1") or b""
    bad = {
        "records/gen-1-2": b"",
        "records/gen-1-3": flipped,
        "records/gen-1-4": text,
        "records/junk": b"\xff\xfe",
        "branches/1.undecided": b"{}",
        "branches/7": place.blobs.get(f"{HOME}/branches/1") or b"",
        f"manifests/{'0' * 64}": b"[" * 100_000,
        f"manifests/{'1' * 64}": shard(1, [noise(1)]).text,
    }
    for key, data in bad.items():
        place.blobs.put(f"{HOME}/{key}", data)
    assert store.inventory() == whole
    assert good.generation in whole.records
    for key in bad:
        assert [one for one in place.reports if key in one], key


def test_an_object_over_the_length_limit_is_not_read(tmp_path: Path) -> None:
    reports: list[str] = []
    store = Store(Volume(tmp_path), "team", "uid-1", report=reports.append)
    good = saved(store, 1, noise(1))
    for name in ("records/gen-1-2", f"manifests/{'0' * 64}"):
        os.truncate(os.open(tmp_path / HOME / name, os.O_WRONLY | os.O_CREAT), MAX_TEXT + 1)
    assert set(store.inventory().records) == {good.generation}
    assert sum(f"longer than {MAX_TEXT} bytes" in one for one in reports) == 2, reports


def test_jobs_are_isolated_from_each_other(place: Place) -> None:
    store, other = place.store(), Store(place.blobs, "team", "uid-12", rules=RULES)
    saved(store, 1, noise(1))
    assert other.inventory() == Inventory() and not other.chunks()
    for bad in ("", ".", "..", "a/b", "/", "a\n"):
        with pytest.raises(ValueError, match="no name"):
            Store(place.blobs, bad, "uid-1")
        with pytest.raises(ValueError, match="no name"):
            Store(place.blobs, "team", bad)


def test_a_record_cannot_refer_to_another_job_s_manifest(place: Place) -> None:
    saved(Store(place.blobs, "team", "uid-2", rules=RULES), 1, noise(1))
    other = shard(1, [noise(1)])
    for out in (f"../../uid-2/manifests/{other.id}", "a\0b", ""):
        with pytest.raises(Missing) as missing:
            place.store().commit(Record(Generation(1, 1), None, {"0": out}))
        assert missing.value.manifests == {out}


def test_a_manifest_must_match_its_name(place: Place) -> None:
    store = place.store()
    put(store, shard(1, [noise(1)]), [noise(1)])
    other = shard(2, [noise(2)])
    place.blobs.put(f"{HOME}/manifests/{other.id}", shard(1, [noise(1)]).text)
    with pytest.raises(Missing) as missing:
        store.commit(record_of(other))
    assert missing.value.manifests == {other.id}


def test_a_store_without_conditional_writes_is_read_only(place: Place) -> None:
    record = saved(place.store(), 1, noise(1))
    store = place.store(conditional=False)
    other = put(store, shard(2, [noise(2)]), [noise(2)])
    before = place.keys()
    for use in (lambda: store.commit(record_of(other)), lambda: store.put_branch(Branch(2))):
        with pytest.raises(StoreError, match="it ignores conditional writes") as refused:
            use()
        assert not refused.value.retriable
    assert place.keys() == before
    assert store.inventory().records == {record.generation: record}


def test_a_blob_over_the_size_limit_is_not_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = place.store()
    record = saved(store, 1, noise(1))
    place.blobs.put("a/b", noise(2))
    assert place.blobs.get("a/b", limit=300) == noise(2)
    assert place.blobs.get("a/b", limit=7) == noise(2)[:7]
    assert place.blobs.get("a/b", (2, 9), limit=7) == noise(2)[2:9]
    seen: list[int] = []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: seen.append(size) or real(fd, size, at))
    key = f"{HOME}/chunks/{chunk_of(noise(1)).digest}"
    place.spoil(key, noise(1) + bytes(10**6))
    with pytest.raises(Damaged):
        store.get_chunk(chunk_of(noise(1)))
    assert sum(seen) <= 301
    place.spoil(f"{HOME}/records/{record.generation.name}", bytes(MAX_TEXT + 1000))
    assert not store.inventory().records
    assert sum(seen) <= 2000 + MAX_TEXT


def test_objects_with_foreign_names_are_kept(place: Place) -> None:
    store = place.store()
    saved(store, 1, noise(1))
    strange = {f"{HOME}/{folder}/{name}" for folder in FOLDERS for name in ("file", "0" * 31, "gen-1-1x")}
    for key in strange:
        place.blobs.put(key, b"x")
    place.age_all()
    assert all(name not in store.listing(folder).sizes for folder in FOLDERS for name in ("file", "0" * 31))
    store.delete(Garbage(chunks=frozenset({"file", "0" * 31}), manifests=frozenset({"file"})))
    assert strange < place.keys()
    assert store.erase() == 3
    assert place.keys() == strange
