"""Stores: one contract for a folder and an S3 server; what breaks leaves no record of what is not there."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import stat
import threading
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.unit.agents import fault_proxy
from tests.unit.agents.fault_proxy import BUCKET, FaultProxy

from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.stores.blobs import MAX_TEXT, Blobs, Listing
from convoy_agents.tiercheck.stores.calls import Watch, Watched
from convoy_agents.tiercheck.stores.errors import Damaged, Missing, NotMounted, StoreError
from convoy_agents.tiercheck.stores.part import FOLDERS
from convoy_agents.tiercheck.stores.probe import Capabilities, probe
from convoy_agents.tiercheck.stores.s3 import S3, Credentials
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.tiercheck.stores.sweeping import SWEEP_SECONDS, WORD_SECONDS
from convoy_agents.tiercheck.stores.upload import Retries, upload
from convoy_agents.tiercheck.stores.volume import Volume
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Branch, Chunk, Inventory, Manifest, Record
from convoy_controllers.checkpoint.retention import Doomed, Keep, reachable

GRACE = 1000.0
KEYS = Credentials("an-access-key", "a-secret-key", "a-session-token")
AT_ONCE = Retries(first_seconds=0.0, cap_seconds=0.0)
HOME = "team/uid-1"


@dataclass
class Place:
    """Where blobs lie, and what happens to them there."""

    blobs: Blobs
    age: Callable[[str, float], None]
    """Makes a blob so many seconds older."""
    spoil: Callable[[str, bytes], None]
    keys: Callable[[], set[str]]
    said: list[str] = field(default_factory=list)

    def store(self, **more: Any) -> Store:
        return Store(self.blobs, "team", "uid-1", grace_seconds=GRACE, report=self.said.append, **more)

    def age_all(self, seconds: float = 2 * GRACE) -> None:
        for key in self.keys():
            self.age(key, seconds)

    def held(self, folder: str) -> set[str]:
        return {key.rpartition("/")[2] for key in self.keys() if key.startswith(f"{HOME}/{folder}/")}


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with fault_proxy.s3_server() as port:
        yield port


@pytest.fixture
def proxy(server: int) -> Iterator[FaultProxy]:
    found = FaultProxy(server)
    yield found
    found.close()


def bucket(url: str, prefix: str = "", **more: Any) -> S3:
    more = {"attempts": 1, "addressing": "path", **more}
    return S3(BUCKET, KEYS, endpoint_url=url, prefix=prefix or f"some/where-{uuid4()}", **more)


def s3_place(url: str) -> Place:
    prefix = f"some/where-{uuid4()}"
    return Place(
        bucket(url, prefix),
        lambda key, seconds: fault_proxy.age(f"{prefix}/{key}", seconds),
        lambda key, data: fault_proxy.spoil(f"{prefix}/{key}", data),
        lambda: {key.removeprefix(f"{prefix}/") for key in fault_proxy.keys(f"{prefix}/")},
    )


def volume_place(root: Path) -> Place:
    def age(key: str, seconds: float) -> None:
        written = (root / key).stat().st_mtime - seconds
        os.utime(root / key, (written, written))

    def spoil(key: str, data: bytes) -> None:
        (root / key).write_bytes(data)

    return Place(
        Volume(root),
        age,
        spoil,
        lambda: {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()},
    )


@pytest.fixture(params=["volume", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "volume":
        return volume_place(tmp_path)
    return s3_place(f"http://127.0.0.1:{request.getfixturevalue('server')}")


def noise(seed: object, size: int = 300) -> bytes:
    return random.Random(str(seed)).randbytes(size)


def chunk_of(data: bytes) -> Chunk:
    return Chunk(digest.digest(data), len(data))


def shard(
    step: int, pieces: list[bytes], name: str = "0", extends: str | None = None, incarnation: int = 1
) -> Manifest:
    size = sum(len(piece) for piece in pieces)
    return Manifest(Generation(incarnation, step), name, tuple(map(chunk_of, pieces)), size, extends=extends)


def record_of(*manifests: Manifest, saved: float = 0.0, parent: Generation | None = None) -> Record:
    return Record(manifests[0].generation, parent, {one.shard: one.id for one in manifests}, saved=saved)


def put(store: Store, manifest: Manifest, pieces: list[bytes]) -> Manifest:
    for chunk, piece in zip(manifest.chunks, pieces, strict=True):
        store.put_chunk(chunk, piece)
    store.put_manifest(manifest)
    return manifest


def saved(store: Store, step: int, *pieces: bytes, parent: int | None = None, **more: Any) -> Record:
    manifest = put(store, shard(step, list(pieces), **more), list(pieces))
    before = None if parent is None else Generation(1, parent)
    record = record_of(manifest, parent=before)
    assert store.commit(record)
    return record


# The contract.


def test_a_chunk_comes_back_as_it_went_and_others_are_not_taken_for_it(place: Place) -> None:
    store, data = place.store(), noise(1)
    chunk = chunk_of(data)
    for wrong in (data[:-1], noise(2)):
        with pytest.raises(Damaged):
            store.put_chunk(chunk, wrong)
    assert not place.keys()
    with pytest.raises(Damaged, match="not in"):
        store.get_chunk(chunk)
    store.put_chunk(chunk, memoryview(bytearray(data)))
    store.put_chunk(chunk, data)
    assert store.get_chunk(chunk) == data
    assert set(store.chunks()) == {chunk.digest}
    assert place.keys() == {f"{HOME}/chunks/{chunk.digest}"}


@pytest.mark.parametrize("at", [0, 150, 299])
def test_damage_where_a_chunk_lies_is_seen(place: Place, at: int) -> None:
    store, data = place.store(), noise(1)
    chunk = chunk_of(data)
    store.put_chunk(chunk, data)
    for spoilt in (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], data[:at], data + b"\0"):
        place.spoil(f"{HOME}/chunks/{chunk.digest}", spoilt)
        with pytest.raises(Damaged):
            store.get_chunk(chunk)


def test_what_was_put_is_listed_by_the_time_it_was_put(place: Place) -> None:
    store = place.store()
    first, second = chunk_of(noise(1)), chunk_of(noise(2))
    store.put_chunk(first, noise(1))
    place.age(f"{HOME}/chunks/{first.digest}", 600)
    store.put_chunk(second, noise(2))
    times = store.chunks()
    assert 590 < times[second.digest] - times[first.digest] < 660
    both = [first.digest, second.digest]
    assert store.promised(both) == {first.digest: False, second.digest: True}
    assert store.touch([first.digest, chunk_of(noise(3)).digest]) == {chunk_of(noise(3)).digest}
    assert store.promised(both) == {first.digest: True, second.digest: True}
    assert store.get_chunk(first) == noise(1)


def test_of_a_folder_no_more_is_held_than_is_asked_for(place: Place) -> None:
    """A job's other ranks may have brought a thousand times as much as is in one shard."""
    seen: list[Listing] = []

    class Seen(Watched):
        def names(self, *more: Any, **also: Any) -> Listing:
            seen.append(super().names(*more, **also))
            return seen[-1]

    place.blobs = Seen(place.blobs, Watch())
    store = place.store()
    put(store, shard(1, [noise(number) for number in range(9)]), [noise(number) for number in range(9)])
    one, absent = chunk_of(noise(1)).digest, chunk_of(noise(10)).digest
    assert store.promised([one, absent]) == {one: True}
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
    assert place.store().kept("chunks").sizes == {}
    place.store().put_chunk(chunk_of(noise(1)), noise(1))
    assert place.store().kept("chunks").sizes == {chunk_of(noise(1)).digest: 300}


def test_a_record_stands_once_all_below_it_is_there_and_for_good(place: Place) -> None:
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


def test_of_many_who_commit_at_once_one_does(place: Place) -> None:
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
    looking = Branch(3, None, decided=False)
    decided = Branch(3, Generation(2, 5))
    assert store.put_branch(looking)
    assert store.inventory().branches == {3: looking}
    said = place.blobs.get(f"{HOME}/branches/3.looking") or b""
    assert store.put_branch(decided) and store.put_branch(decided)
    assert not store.put_branch(looking)
    assert not store.put_branch(Branch(3, Generation(1, 1)))
    assert store.inventory().branches == {3: decided}
    # One that was on its way when it was decided.
    place.blobs.put(f"{HOME}/branches/3.looking", said)
    assert store.inventory().branches == {3: decided}


def test_what_is_malformed_is_said_and_passed_over(place: Place) -> None:
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
        "branches/1.looking": b"{}",
        "branches/7": place.blobs.get(f"{HOME}/branches/1") or b"",
        f"manifests/{'0' * 64}": b"[" * 100_000,
        f"manifests/{'1' * 64}": shard(1, [noise(1)]).text,
    }
    for key, data in bad.items():
        place.blobs.put(f"{HOME}/{key}", data)
    assert store.inventory() == whole
    assert good.generation in whole.records
    for key in bad:
        assert [one for one in place.said if key in one], key


def test_what_is_too_long_to_be_ours_is_not_read(tmp_path: Path) -> None:
    said: list[str] = []
    store = Store(Volume(tmp_path), "team", "uid-1", report=said.append)
    good = saved(store, 1, noise(1))
    for name in ("records/gen-1-2", f"manifests/{'0' * 64}"):
        os.truncate(os.open(tmp_path / HOME / name, os.O_WRONLY | os.O_CREAT), MAX_TEXT + 1)
    assert set(store.inventory().records) == {good.generation}
    assert sum(f"more than {MAX_TEXT} bytes" in one for one in said) == 2, said


def test_jobs_do_not_see_each_other(place: Place) -> None:
    store, other = place.store(), Store(place.blobs, "team", "uid-12", grace_seconds=GRACE)
    saved(store, 1, noise(1))
    assert other.inventory() == Inventory() and not other.chunks()
    for bad in ("", ".", "..", "a/b", "/", "a\n"):
        with pytest.raises(ValueError, match="no name"):
            Store(place.blobs, bad, "uid-1")
        with pytest.raises(ValueError, match="no name"):
            Store(place.blobs, "team", bad)


def test_a_record_that_points_out_of_its_job_finds_nothing(place: Place) -> None:
    saved(Store(place.blobs, "team", "uid-2", grace_seconds=GRACE), 1, noise(1))
    other = shard(1, [noise(1)])
    for out in (f"../../uid-2/manifests/{other.id}", "a\0b", ""):
        with pytest.raises(Missing) as missing:
            place.store().commit(Record(Generation(1, 1), None, {"0": out}))
        assert missing.value.manifests == {out}


def test_a_manifest_is_the_one_of_its_name(place: Place) -> None:
    store = place.store()
    put(store, shard(1, [noise(1)]), [noise(1)])
    other = shard(2, [noise(2)])
    place.blobs.put(f"{HOME}/manifests/{other.id}", shard(1, [noise(1)]).text)
    with pytest.raises(Missing) as missing:
        store.commit(record_of(other))
    assert missing.value.manifests == {other.id}


# Deleting.


def test_a_sweep_deletes_all_that_is_obsolete_and_old_and_nothing_else(place: Place) -> None:
    store = place.store()
    saved(store, 1, noise(1), noise(2))
    base = saved(store, 2, noise(2), noise(3), parent=1)
    saved(store, 3, noise(4), parent=2, extends=base.shards["0"])
    put(store, shard(9, [noise(9)], incarnation=0), [noise(9)])
    before = place.keys()
    assert store.sweep(Keep(last=1)).records == (Generation(1, 1), Generation(1, 2))
    assert place.keys() == before - {f"{HOME}/records/gen-1-1", f"{HOME}/records/gen-1-2"}, "all is young"
    place.age_all()
    store.sweep(Keep(last=1))
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
    store.sweep(Keep(last=1))
    assert place.held("records") == {"gen-1-4"}
    assert place.held("chunks") == {chunk_of(noise(5)).digest}
    assert len(place.keys()) == 3, "nothing else stays"


def test_branches_go_with_what_they_tell_of(place: Place) -> None:
    store = place.store()
    store.put_branch(Branch(1))
    store.put_branch(Branch(2, decided=False))
    assert store.delete(Doomed(branches=(1, 2))).branches == (1, 2)
    assert not place.keys()


def test_a_chunk_that_is_promised_anew_outlives_a_sweep_that_had_it_on_its_list(place: Place) -> None:
    store = place.store()
    saved(store, 1, noise(1), noise(2))
    saved(store, 2, noise(3), parent=1)
    place.age_all()
    doomed = Doomed(
        chunks=frozenset(chunk_of(noise(number)).digest for number in (1, 2)),
        manifests=frozenset({shard(1, [noise(1), noise(2)]).id}),
    )
    done = upload(store, shard(3, [noise(1)]), lambda index: noise(1), stop=threading.Event())
    assert (done.sent_bytes, done.skipped_bytes) == (0, 300)
    gone = store.delete(replace(doomed, records=(Generation(1, 1),)))
    assert gone.chunks == {chunk_of(noise(2)).digest}
    assert store.get_chunk(chunk_of(noise(1))) == noise(1)


def test_a_commit_makes_young_what_it_stands_on(place: Place) -> None:
    store = place.store()
    manifest = put(store, shard(1, [noise(1), noise(2)]), [noise(1), noise(2)])
    place.age_all()
    assert store.commit(record_of(manifest))
    assert set(store.promised(store.chunks()).values()) == {True}
    assert store.delete(Doomed(manifests=frozenset({manifest.id}))).manifests == set()


def test_nothing_in_use_is_deleted_whoever_asks(place: Place) -> None:
    store = place.store()
    saved(store, 1, noise(1))
    place.age_all()
    before = place.keys()
    gone = store.delete(
        Doomed(manifests=frozenset(place.held("manifests")), chunks=frozenset(place.held("chunks")))
    )
    assert gone == Doomed() and place.keys() == before


def test_chunks_stay_while_a_manifest_in_use_cannot_be_read(place: Place) -> None:
    store = place.store()
    record = saved(store, 1, noise(1))
    place.age_all()
    key = f"{HOME}/manifests/{record.shards['0']}"
    place.spoil(key, b"{")
    place.age_all()
    store.sweep(Keep(last=1))
    assert place.held("chunks")
    store.put_manifest(shard(1, [noise(1)]))
    assert store.get_chunk(chunk_of(noise(1))) == noise(1)


def test_no_commit_while_somebody_deletes_unless_he_has_long_gone(place: Place) -> None:
    store = place.store()
    manifest = put(store, shard(1, [noise(1)]), [noise(1)])
    word = f"{HOME}/sweeps/0123456789abcdef"
    place.blobs.put(word, b"")
    with pytest.raises(StoreError, match="being deleted") as refused:
        store.commit(record_of(manifest))
    assert refused.value.retriable and not place.held("records")
    place.age(word, WORD_SECONDS + 2)
    assert store.commit(record_of(manifest))
    place.age(word, WORD_SECONDS)
    store.delete(Doomed())
    assert not place.held("sweeps")


def test_who_finds_nothing_to_delete_keeps_nobody_from_committing(place: Place) -> None:
    """Its agent may die at any moment of a sweep, and the job's next one is not to wait for it."""
    said: list[str] = []

    class Told(type(place.blobs)):  # type: ignore[misc]
        def put(self, key: str, data: bytes) -> None:
            said.append(key)
            super().put(key, data)

    store = place.store()
    for step in (1, 2):
        manifest = put(store, shard(step, [noise(step)]), [noise(step)])
        assert store.commit(record_of(manifest))
    place.blobs.__class__ = Told
    assert place.store().sweep(Keep(last=1)).records == (Generation(1, 1),)
    assert not said
    place.age_all()
    place.store().sweep(Keep(last=1))
    assert [key for key in said if "/sweeps/" in key]


def test_a_sweep_whose_listings_outlast_its_word_deletes_nothing(place: Place) -> None:
    ticks = iter([0.0, WORD_SECONDS / 2 + 1])
    store = place.store(clock=lambda: next(ticks))
    store.put_chunk(chunk_of(noise(1)), noise(1))
    place.age_all()
    with pytest.raises(StoreError, match="takes 151 s") as failed:
        store.delete(Doomed(chunks=frozenset(place.held("chunks"))))
    assert failed.value.retriable and place.held("chunks")


def test_a_sweep_that_takes_too_long_stops_and_the_next_goes_on(place: Place) -> None:
    ticks = iter([0.0, 0.0, 1.0, SWEEP_SECONDS, SWEEP_SECONDS])
    store = place.store(clock=lambda: next(ticks))
    for number in range(3):
        store.put_chunk(chunk_of(noise(number)), noise(number))
    place.age_all()
    everything = frozenset(place.held("chunks"))
    assert len(store.delete(Doomed(chunks=everything)).chunks) == 1
    assert len(place.held("chunks")) == 2
    assert place.store().delete(Doomed(chunks=everything)).chunks == everything
    assert not place.keys()


def test_without_conditional_writes_nothing_is_committed_and_all_is_read(place: Place) -> None:
    record = saved(place.store(), 1, noise(1))
    store = place.store(conditional=False)
    other = put(store, shard(2, [noise(2)]), [noise(2)])
    before = place.keys()
    for use in (lambda: store.commit(record_of(other)), lambda: store.put_branch(Branch(2))):
        with pytest.raises(StoreError, match="does not honour conditional writes") as refused:
            use()
        assert not refused.value.retriable
    assert place.keys() == before
    assert store.inventory().records == {record.generation: record}


# A folder.


@pytest.mark.parametrize("call", ["open", "write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
def test_what_a_disk_refuses_is_said_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    place = volume_place(tmp_path)
    store = place.store()
    store.put_chunk(chunk_of(noise(1)), noise(1))
    before = place.keys()

    def fail(*args: object, **more: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(StoreError) as failed:
            store.put_chunk(chunk_of(noise(2)), noise(2))
    assert failed.value.errno == code and not failed.value.retriable
    assert str(tmp_path) in str(failed.value) and "; " in str(failed.value)
    assert place.keys() == before
    store.put_chunk(chunk_of(noise(2)), noise(2))


def test_a_volume_that_is_not_mounted_is_no_empty_store(tmp_path: Path) -> None:
    store = Store(Volume(tmp_path / "gone"), "team", "uid-1")
    for use in (
        lambda: store.put_chunk(chunk_of(noise(1)), noise(1)),
        lambda: store.get_chunk(chunk_of(noise(1))),
        store.inventory,
        lambda: store.touch(["0" * 32]),
    ):
        with pytest.raises(StoreError, match="not mounted") as failed:
            use()
        assert failed.value.errno == errno.ENOENT
    assert not (tmp_path / "gone").exists()


def test_part_of_a_volume_is_made_and_nothing_else_is_touched(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    volume = Volume(tmp_path, "clusters/one", claim="disk")
    assert volume.folders("") == set() and volume.get("a/b") is None
    volume.put("a/b", b"here")
    assert (tmp_path / "clusters" / "one" / "a" / "b").read_bytes() == b"here"
    assert volume.folders("") == {"a"} and volume.where == "claim disk, folder clusters/one"
    assert {path.name for path in tmp_path.iterdir()} == {"other", "clusters"}


def test_a_folder_where_nothing_is_mounted_is_not_written_to(tmp_path: Path) -> None:
    there = [False]
    volume = Volume(tmp_path, "clusters/one", claim="disk", mounted=lambda root: there[0])
    for use in (
        lambda: volume.put("a/b", b"here"),
        lambda: volume.create("a/b", b"here"),
        lambda: volume.get("a/b"),
        lambda: volume.names("a"),
        lambda: volume.touch("a/b"),
        lambda: probe(volume),
    ):
        with pytest.raises(NotMounted, match="claim disk, folder clusters/one: it is not mounted at"):
            use()
    assert not list(tmp_path.iterdir())
    there[0] = True
    assert probe(volume).conditional


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK])
def test_a_file_system_without_hard_links_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(*args: object, **more: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", fail)
    found = probe(Volume(tmp_path))
    assert (found.conditional, found.listing, found.touch) == (False, True, True)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_of_two_at_the_last_step_of_creating_a_file_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2)

    def meeting(real: Callable[..., Any]) -> Callable[..., Any]:
        def met(*args: Any, **more: Any) -> Any:
            both.wait(20)
            return real(*args, **more)

        return met

    for name in ("link", "replace", "rename"):
        monkeypatch.setattr(os, name, meeting(getattr(os, name)))
    volume = Volume(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda data: volume.create("a/b", data), [b"0", b"1"]))
    assert sorted(done) == [False, True]
    assert volume.get("a/b") == str(done.index(True)).encode()


def test_who_reads_a_file_that_is_replaced_reads_the_old_one_to_its_end(tmp_path: Path) -> None:
    volume = Volume(tmp_path)
    volume.put("a/b", b"old")
    with (tmp_path / "a" / "b").open("rb") as file:
        volume.put("a/b", b"newer")
        assert file.read() == b"old"
    assert volume.get("a/b") == b"newer"


def test_a_kernel_that_writes_little_at_a_time_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
    Volume(tmp_path).put("a/b", noise(1))
    assert (tmp_path / "a" / "b").read_bytes() == noise(1)


def test_what_broke_off_on_a_volume_is_cleared_up(tmp_path: Path) -> None:
    place = volume_place(tmp_path)
    store = place.store()
    saved(store, 1, noise(1))
    torn, going_on, foreign = ".torn.0123456789abcdef", ".going-on.0123456789abcdef", ".foreign"
    for name in (torn, going_on, foreign):
        (tmp_path / HOME / "chunks" / name).write_bytes(b"half")
    for name in (torn, foreign):
        place.age(f"{HOME}/chunks/{name}", 2 * GRACE)
    assert len(store.chunks()) == 1
    assert store.kept("chunks").unfinished == {torn: 4, going_on: 4}
    store.sweep(Keep())
    assert place.held("chunks") == {chunk_of(noise(1)).digest, going_on, foreign}
    store.erase()
    assert place.held("chunks") == {foreign}


# A folder to which somebody else writes.


Planted = Callable[[Path, Path], None]


def link_to_file(at: Path, outside: Path) -> None:
    at.symlink_to(outside / "file")


def link_to_nothing(at: Path, outside: Path) -> None:
    at.symlink_to(outside / "none")


def link_to_folder(at: Path, outside: Path) -> None:
    at.symlink_to(outside)


def pipe(at: Path, outside: Path) -> None:
    os.mkfifo(at)


def device(at: Path, outside: Path) -> None:
    try:
        os.mknod(at, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What is not on the volume."""
    made = tmp_path / "outside"
    made.mkdir()
    (made / "file").write_bytes(noise(1))
    os.utime(made / "file", (1.0, 1.0))
    return made


def untouched(outside: Path) -> bool:
    found = (outside / "file").stat()
    return (
        [path.name for path in outside.iterdir()] == ["file"]
        and (outside / "file").read_bytes() == noise(1)
        and (found.st_mtime, found.st_nlink) == (1.0, 1)
    )


def uses(volume: Volume, key: str) -> list[Callable[[], object]]:
    return [
        lambda: volume.put(key, b"x"),
        lambda: volume.create(key, b"x"),
        lambda: volume.get(key),
        lambda: volume.get(key, (0, 4)),
        lambda: volume.touch(key),
        lambda: volume.remove(key),
    ]


@pytest.mark.parametrize("link", [link_to_folder, link_to_file, link_to_nothing, pipe, device])
@pytest.mark.parametrize("depth", range(5))
def test_no_link_in_place_of_a_folder_leads_out_of_a_volume(
    tmp_path: Path, outside: Path, depth: int, link: Planted
) -> None:
    root = tmp_path / "disk"
    parts = ["clusters", "one", "team", "uid-1", "chunks"]
    root.joinpath(*parts[:depth]).mkdir(parents=True)
    link(root.joinpath(*parts[: depth + 1]), outside)
    volume = Volume(root, "clusters/one")
    # Were it followed, this would be found.
    for use in (*uses(volume, "team/uid-1/chunks/file"), lambda: volume.names("team/uid-1/chunks")):
        with pytest.raises(StoreError, match="who else writes to the volume") as refused:
            use()
        assert not refused.value.retriable
    with contextlib.suppress(StoreError):
        volume.tidy("team/uid-1/chunks", 1e12)
    assert untouched(outside)


@pytest.mark.parametrize("link", [link_to_folder, link_to_file, link_to_nothing, pipe, device])
def test_what_is_no_regular_file_is_not_read_and_gives_way_to_one(
    tmp_path: Path, outside: Path, link: Planted
) -> None:
    root = tmp_path / "disk"
    at = root / "a" / "file"
    at.parent.mkdir(parents=True)
    link(at, outside)
    volume = Volume(root)
    assert volume.names("a")[1:] == ({}, {}, {})
    assert volume.folders("a") == set()
    for use in uses(volume, "a/file")[1:5]:
        with pytest.raises(StoreError, match="who else writes to the volume"):
            use()
    volume.put("a/file", b"ours")
    assert volume.get("a/file") == b"ours" and not at.is_symlink()
    at.unlink()
    link(at, outside)
    volume.remove("a/file")
    assert not os.path.lexists(at) and untouched(outside)


def test_a_link_that_is_planted_under_a_temporary_name_is_not_written_through(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "disk"
    (root / "a").mkdir(parents=True)
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 16)
    (root / "a" / f".file.{'0' * 16}").symlink_to(outside / "file")
    for use in (lambda: Volume(root).put("a/file", b"x"), lambda: Volume(root).create("a/file", b"x")):
        with pytest.raises(StoreError):
            use()
    assert untouched(outside)


def test_no_key_leads_above_a_volume(tmp_path: Path, outside: Path) -> None:
    volume = Volume(tmp_path / "outside")
    for use in uses(volume, "../file") + uses(volume, "a/../../file") + uses(volume, "/"):
        with pytest.raises(ValueError, match="names nothing below"):
            use()
    assert untouched(outside)


def test_more_than_a_blob_may_have_is_not_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_names_that_are_nobodys_are_left_alone(place: Place) -> None:
    store = place.store()
    saved(store, 1, noise(1))
    strange = {f"{HOME}/{folder}/{name}" for folder in FOLDERS for name in ("file", "0" * 31, "gen-1-1x")}
    for key in strange:
        place.blobs.put(key, b"x")
    place.age_all()
    assert all(name not in store.kept(folder).sizes for folder in FOLDERS for name in ("file", "0" * 31))
    store.delete(Doomed(chunks=frozenset({"file", "0" * 31}), manifests=frozenset({"file"})))
    assert strange < place.keys()
    assert store.erase() == 3
    assert place.keys() == strange


# What is durable.


class Synced:
    """Which files and folders were synced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inodes: set[int] = set()
        real = os.fsync

        def fsync(fd: int) -> None:
            self.inodes.add(os.fstat(fd).st_ino)
            real(fd)

        monkeypatch.setattr(os, "fsync", fsync)

    def lacks(self, *paths: Path) -> list[Path]:
        return [path for path in paths if path.stat().st_ino not in self.inodes]


def test_a_record_that_somebody_left_behind_stands_only_once_it_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = volume_place(tmp_path).store()
    record = saved(store, 1, noise(1))
    store.put_branch(Branch(1))
    home = tmp_path / HOME
    synced = Synced(monkeypatch)
    assert store.commit(record)
    above = [home, home.parent, tmp_path]
    assert not synced.lacks(home / "records" / record.generation.name, home / "records", *above)
    synced.inodes.clear()
    assert store.put_branch(Branch(1))
    assert not synced.lacks(home / "branches" / "1", home / "branches", *above)


# An S3 server that fails, and a network that does.


def test_a_commit_whose_answer_is_lost_has_won(proxy: FaultProxy) -> None:
    for attempts in (1, 2):
        place = s3_place(proxy.url)
        place.blobs = bucket(proxy.url, f"lost-{uuid4()}", attempts=attempts)
        store = place.store()
        record = record_of(put(store, shard(1, [noise(1)]), [noise(1)]))
        proxy.inject(fault_proxy.lose, "PUT", "/records/", times=1)
        if attempts == 1:
            with pytest.raises(StoreError) as lost:
                store.commit(record)
            assert lost.value.retriable
        assert store.commit(record)
        assert not store.commit(replace(record, saved=1.0))
        assert store.inventory().records == {record.generation: record}


def test_a_commit_that_comes_twice_has_won(proxy: FaultProxy) -> None:
    store = s3_place(proxy.url).store()
    record = record_of(put(store, shard(1, [noise(1)]), [noise(1)]))
    proxy.inject(fault_proxy.duplicate, "PUT", "/records/")
    assert store.commit(record)
    assert not store.commit(replace(record, saved=1.0))
    assert store.inventory().records == {record.generation: record}


def test_two_who_both_saw_no_record_have_one_winner(proxy: FaultProxy) -> None:
    store = s3_place(proxy.url).store()
    manifest = put(store, shard(1, [noise(1)]), [noise(1)])
    proxy.inject(fault_proxy.meet(threading.Barrier(2)), "PUT", "/records/", times=2)
    rivals = [record_of(manifest, saved=float(number)) for number in range(2)]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(store.commit, rivals))
    assert sorted(done) == [False, True]
    assert store.inventory().records == {manifest.generation: rivals[done.index(True)]}


def test_a_server_that_ignores_conditions_has_two_winners_which_the_probe_finds(proxy: FaultProxy) -> None:
    proxy.inject(fault_proxy.without("if-none-match"), "PUT")
    assert not probe(bucket(proxy.url)).conditional
    store = s3_place(proxy.url).store()
    manifest = put(store, shard(1, [noise(1)]), [noise(1)])
    strip, both = fault_proxy.without("if-none-match"), threading.Barrier(2)
    proxy.inject(
        lambda request, forward: fault_proxy.meet(both)(
            request, lambda one: strip(one, forward) or forward(one)
        ),
        "PUT",
        "/records/",
        times=2,
    )
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(store.commit, [record_of(manifest, saved=float(number)) for number in range(2)]))
    assert done == [True, True]


@pytest.mark.parametrize(
    ("fault", "word", "retriable"),
    [
        (fault_proxy.refuse(503), "busy", True),
        (fault_proxy.refuse(500, "InternalError"), "busy", True),
        (fault_proxy.refuse(429, "TooManyRequests"), "busy", True),
        (fault_proxy.drop, "not reached", True),
        (fault_proxy.refuse(409, "ConditionalRequestConflict"), "tried again", True),
        (fault_proxy.refuse(400, "BadDigest"), "sent again", True),
        (fault_proxy.refuse(403, "AccessDenied"), "s3:PutObject", False),
        (fault_proxy.refuse(403, "InvalidAccessKeyId", "an-access-key a-secret-key"), "Secret", False),
        (fault_proxy.refuse(400, "ExpiredToken", "a-session-token"), "expired", False),
        (fault_proxy.refuse(404, "NoSuchBucket"), "no such bucket", False),
        (fault_proxy.refuse(403, "RequestTimeTooSkewed"), "clock is wrong; set it", False),
        (fault_proxy.refuse(507, "InsufficientStorage"), "is full", False),
        (fault_proxy.refuse(418, "Teapot"), "418 Teapot", False),
    ],
)
def test_an_error_names_the_bucket_what_was_done_and_the_way_out(
    proxy: FaultProxy, fault: fault_proxy.Fault, word: str, retriable: bool
) -> None:
    blobs = bucket(proxy.url, "part")
    proxy.inject(fault)
    for operation, use in {
        "put": lambda: blobs.put("a/b", b""),
        "create": lambda: blobs.create("a/b", b""),
        "get": lambda: blobs.get("a/b"),
        "list": lambda: blobs.names("a"),
        "delete": lambda: blobs.remove("a/b"),
    }.items():
        with pytest.raises(StoreError) as failed:
            use()
        message = str(failed.value)
        assert BUCKET in message and f"{operation} part/a" in message and word in message, message
        assert failed.value.retriable == retriable and failed.value.full == ("is full" in word)
        for secret in (KEYS.access_key, KEYS.secret_key, KEYS.session_token):
            assert secret not in message + repr(blobs) + repr(KEYS)


def test_an_answer_that_breaks_off_is_no_answer(proxy: FaultProxy) -> None:
    blobs = bucket(proxy.url)
    blobs.put("a/b", noise(1))
    proxy.inject(fault_proxy.cut)
    for use in (lambda: blobs.names("a"), lambda: blobs.get("a/b")):
        with pytest.raises(StoreError) as failed:
            use()
        assert failed.value.retriable


def test_a_store_that_does_not_answer_is_not_waited_for(proxy: FaultProxy) -> None:
    over = threading.Event()

    def stall(request: fault_proxy.Request, forward: fault_proxy.Forward) -> None:
        over.wait(50)

    proxy.inject(stall)
    with pytest.raises(StoreError, match="ReadTimeoutError") as failed:
        bucket(proxy.url, read_seconds=0.1).get("a/b")
    over.set()
    assert failed.value.retriable


def test_a_store_that_cannot_copy_has_chunks_sent_again(proxy: FaultProxy) -> None:
    place = s3_place(proxy.url)
    store = place.store()
    store.put_chunk(chunk_of(noise(1)), noise(1))
    place.age_all()
    proxy.inject(
        lambda request, forward: (
            fault_proxy.refuse(501, "NotImplemented")(request, forward)
            if "x-amz-copy-source" in request.headers
            else forward(request)
        ),
        "PUT",
    )
    done = upload(store, shard(1, [noise(1)]), lambda index: noise(1), stop=threading.Event())
    assert done.sent_bytes == 300
    assert store.promised(store.chunks()) == {chunk_of(noise(1)).digest: True}


def test_credentials_can_be_renewed(proxy: FaultProxy) -> None:
    blobs = bucket(proxy.url)
    blobs.put("a/b", b"1")
    blobs.renew(Credentials("another-key", "secret"))
    blobs.put("a/b", b"2")
    assert ["another-key" in one.headers["authorization"] for one in proxy.seen] == [False, True]


def test_md5_goes_with_the_bytes_where_it_is_asked_for(proxy: FaultProxy) -> None:
    bucket(proxy.url, checksum="md5").put("a/b", b"")
    bucket(proxy.url).put("a/b", b"")
    sent = [{"content-md5", "x-amz-checksum-crc32"} & one.headers.keys() for one in proxy.seen]
    assert sent == [{"content-md5"}, {"x-amz-checksum-crc32"}]


# The probe.


def test_the_probe_says_what_a_store_does_and_leaves_nothing(place: Place) -> None:
    assert probe(place.blobs) == Capabilities(
        conditional=True, listing=True, ranges=True, touch=True, checksums=False
    )
    assert not place.keys()


def test_the_probe_leaves_no_folder(tmp_path: Path) -> None:
    probe(Volume(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("fault", "method", "path", "wanting"),
    [
        (fault_proxy.without("if-none-match"), "PUT", "", "conditional"),
        (fault_proxy.without("range"), "GET", "", "ranges"),
        (fault_proxy.empty_list, "GET", "list-type", "listing"),
    ],
)
def test_the_probe_finds_what_a_store_ignores(
    proxy: FaultProxy, fault: fault_proxy.Fault, method: str, path: str, wanting: str
) -> None:
    prefix = f"probed-{uuid4()}"
    proxy.inject(fault, method, path)
    found = probe(bucket(proxy.url, prefix))
    assert found == replace(
        Capabilities(conditional=True, listing=True, ranges=True, touch=True, checksums=False),
        **{wanting: False},
    )
    assert not fault_proxy.keys(prefix)


def test_the_probe_sees_that_damage_is_refused(proxy: FaultProxy) -> None:
    proxy.inject(fault_proxy.check_crc32, "PUT")
    found = probe(bucket(proxy.url))
    assert found == Capabilities(conditional=True, listing=True, ranges=True, touch=True, checksums=True)
    assert "work" in found.summary
    assert "nothing is committed" in replace(found, conditional=False).summary


def test_the_probe_of_a_store_that_is_down_finds_nothing_out(proxy: FaultProxy) -> None:
    proxy.inject(fault_proxy.refuse(503))
    with pytest.raises(StoreError):
        probe(bucket(proxy.url))


# Crashes and races, one operation at a time.


class Crash(BaseException):
    """The process is gone."""


class Memory:
    """Blobs in this process, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 1e6
        self.found: dict[str, tuple[bytes, float]] = {}
        self.before: Callable[[str], None] = lambda operation: None
        self.after: Callable[[str], None] = lambda operation: None

    @property
    def where(self) -> str:
        return "memory"

    @contextlib.contextmanager
    def _step(self, operation: str) -> Iterator[None]:
        self.before(operation)
        yield
        self.after(operation)

    def put(self, key: str, data: digest.Buffer) -> None:
        with self._step(f"put {key}"):
            self.found[key] = (bytes(data), self.now)

    def create(self, key: str, data: digest.Buffer) -> bool:
        with self._step(f"create {key}"):
            return self.found.setdefault(key, new := (bytes(data), self.now)) is new

    def get(self, key: str, span: tuple[int, int] | None = None, limit: int = MAX_TEXT) -> bytes | None:
        with self._step(f"get {key}"):
            return self.found[key][0] if key in self.found else None

    def names(self, folder: str, wanted: Container[str] | None = None) -> Listing:
        with self._step(f"list {folder}"):
            there = {
                key[len(folder) + 1 :]: at
                for key, (_, at) in self.found.items()
                if key.startswith(folder + "/")
            }
            return Listing(
                self.now, {name: at for name, at in there.items() if wanted is None or name in wanted}
            )

    def touch(self, key: str) -> bool:
        with self._step(f"touch {key}"):
            if key in self.found:
                self.found[key] = (self.found[key][0], self.now)
            return key in self.found

    def remove(self, key: str) -> None:
        with self._step(f"remove {key}"):
            self.found.pop(key, None)

    def tidy(self, folder: str, before: float, alive: Callable[[], None] = lambda: None) -> None:
        pass

    def refuses_damage(self, key: str) -> bool:
        return False

    def seen_by(
        self, before: Callable[[str], None], after: Callable[[str], None] = lambda op: None
    ) -> Memory:
        """The same blobs, as another process uses them."""
        view = View(self)
        view.before, view.after = before, after
        return view

    def broken(self) -> list[str]:
        """Records that stand on something that is not there."""
        self_view = Store(View(self), "team", "uid-1", grace_seconds=GRACE)
        found = self_view.inventory()
        chunks = self_view.chunks()
        bad = []
        for generation, record in found.records.items():
            for key in reachable(record.shards.values(), found.manifests):
                one = found.manifests.get(key)
                if one is None or any(chunk.digest not in chunks for chunk in one.chunks):
                    bad.append(f"{generation.name}: {key}")
        return bad


class View(Memory):
    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory
        self.found = memory.found

    @property
    def now(self) -> float:
        return self._memory.now

    @now.setter
    def now(self, value: float) -> None:
        pass


class Serial(Store):
    """One operation after another."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._part.many = lambda work, items: [work(one) for one in items]  # type: ignore[method-assign]


def serial(memory: Memory, kind: type[Store] = Serial) -> Store:
    return kind(memory, "team", "uid-1", grace_seconds=GRACE, clock=lambda: memory.now)


def old_world() -> Memory:
    """Two generations long ago; the older one is obsolete."""
    memory = Memory()
    store = serial(memory)
    saved(store, 1, noise(1), noise(2))
    saved(store, 2, noise(2), noise(3), parent=1)
    memory.now += 3 * GRACE
    return memory


PIECES = [noise(1), noise(3), noise(4)]
"""One that is obsolete by now, one in use, one new."""
NEXT = shard(3, PIECES)


def go_on(store: Store) -> None:
    """Uploads a generation, commits it, and deletes what is obsolete then."""
    upload(store, NEXT, PIECES.__getitem__, stop=threading.Event(), threads=1, retries=AT_ONCE)
    assert store.commit(record_of(NEXT, parent=Generation(1, 2)))
    store.sweep(Keep(last=1))


def count_operations() -> int:
    memory, seen = old_world(), []
    go_on(serial(memory.seen_by(seen.append)))
    return len(seen)


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_crash_between_any_two_operations_leaves_no_record_of_what_is_not_there(done: bool) -> None:
    total = count_operations()
    assert total > 20
    for number in range(total):
        memory, left = old_world(), [number]

        def step(operation: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Crash(operation)

        view = memory.seen_by(*((lambda op: None, step) if done else (step,)))
        with pytest.raises(Crash):
            go_on(serial(view))
        assert not memory.broken(), number
        memory.now += WORD_SECONDS
        go_on(serial(memory))
        assert not memory.broken()
        memory.now += 2 * WORD_SECONDS + 2 * GRACE
        serial(memory).sweep(Keep(last=1))
        names = {key.rpartition("/")[2] for key in memory.found}
        assert names == {"gen-1-3", NEXT.id, *(chunk.digest for chunk in NEXT.chunks)}, number


def test_a_crash_between_any_two_system_calls_on_a_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = ("open", "write", "fsync", "link", "replace", "unlink", "mkdir")
    real = {name: getattr(os, name) for name in calls}
    left = [10**9]

    def patched(name: str) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Crash(name)
            return real[name](*args, **more)

        return call

    total = 10**9
    number = 0
    while number < total:
        root = tmp_path / str(number)
        root.mkdir()
        place = volume_place(root)
        store = Serial(place.blobs, "team", "uid-1", grace_seconds=GRACE)
        saved(store, 1, noise(1))
        place.age_all()
        with monkeypatch.context() as patch:
            for name in calls:
                patch.setattr(os, name, patched(name))
            left[0] = number
            with contextlib.suppress(Crash):
                saved(store, 2, noise(2), parent=1)
                store.sweep(Keep(last=1))
                assert len(place.held("chunks")) == 1
                total = number
        found = store.inventory()
        assert found.records
        for record in found.records.values():
            assert set(record.shards.values()) <= found.manifests.keys(), number
            for key in record.shards.values():
                for chunk in found.manifests[key].chunks:
                    store.get_chunk(chunk)
        number += 1
    assert number > 30


class Actor:
    """A process that does one operation whenever it is let."""

    def __init__(self, memory: Memory, kind: type[Store], life: Callable[[Store], None]) -> None:
        self._turn = threading.Semaphore(0)
        self._rests = threading.Semaphore(0)
        self.over = False
        self.error: BaseException | None = None
        self.store = serial(memory.seen_by(self._wait), kind)
        self._life = life
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._rests.acquire()

    def step(self) -> None:
        self._turn.release()
        self._rests.acquire()

    def _wait(self, operation: str) -> None:
        self._rests.release()
        self._turn.acquire()

    def _run(self) -> None:
        try:
            self._life(self.store)
        except BaseException as error:
            self.error = error
        self.over = True
        self._rests.release()


def uploads(step: int, pieces: list[bytes], parent: int) -> Callable[[Store], None]:
    def life(store: Store) -> None:
        manifest = shard(step, pieces)
        for _ in range(50):
            with contextlib.suppress(StoreError):
                upload(
                    store, manifest, pieces.__getitem__, stop=threading.Event(), threads=1, retries=AT_ONCE
                )
                for _ in range(10):
                    try:
                        assert store.commit(record_of(manifest, parent=Generation(1, parent)))
                        return
                    except StoreError as error:
                        if not error.retriable:
                            raise
        raise AssertionError("it never came through")

    return life


def sweeps(store: Store) -> None:
    for _ in range(2):
        store.sweep(Keep(last=1))


def race(seed: int, kind: type[Store]) -> list[str]:
    """Two who upload what is obsolete, and two who delete it, in some order; records that are broken."""
    chance = random.Random(seed)
    memory = old_world()
    actors = [
        Actor(memory, kind, uploads(3, PIECES, 2)),
        Actor(memory, kind, uploads(4, [noise(1), noise(2)], 2)),
        Actor(memory, kind, sweeps),
        Actor(memory, kind, sweeps),
    ]
    while alive := [one for one in actors if not one.over]:
        # One goes on for a while, so that whole phases of another fall between two operations.
        actor = chance.choice(alive)
        for _ in range(chance.choice((1, 2, 5, 20))):
            if not actor.over:
                actor.step()
                memory.now += chance.choice((0.0, 0.0, 1.0))
    for actor in actors:
        if actor.error:
            raise actor.error
    return memory.broken()


def test_whoever_uploads_and_deletes_at_the_same_time_no_record_is_broken() -> None:
    for seed in range(150):
        assert not race(seed, Serial), seed


class Careless(Serial):
    """Commits without a look."""

    def _secure(self, record: Record) -> None:
        pass


class Blind(Serial):
    """Does not see that somebody deletes."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._sweeping.see_none = lambda: None  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", [Careless, Blind])
def test_those_races_are_lost_by_who_does_not_look(kind: type[Store]) -> None:
    assert any(race(seed, kind) for seed in range(150))
