"""Tests of the shards in a node's memory. Shards that a restore may need must stay, and all others must be
dropped.
"""

from __future__ import annotations

import errno
import os
import random
import tempfile
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from tests.cases import cases

from convoy_agents.tiercheck import digest, memory
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Branch, Chunk, Manifest, Record

SIZE = 3 * 4096


@pytest.fixture
def store(tmp_path: Path) -> ShardStore:
    return ShardStore(tmp_path)


def pieces(data: bytes, count: int = 3) -> list[bytes]:
    size = -(-len(data) // count)
    return [data[at : at + size] for at in range(0, len(data), size)]


def named(data: bytes, step: int, shard: str = "0", incarnation: int = 1, count: int = 3) -> Manifest:
    chunks = tuple(Chunk(digest.digest(piece), len(piece)) for piece in pieces(data, count))
    return Manifest(Generation(incarnation, step), shard, chunks, len(data))


def noise(seed: int, size: int = SIZE) -> bytes:
    return random.Random(seed).randbytes(size)


def sealed(store: ShardStore, buffer: str, step: int) -> Manifest:
    with store.buffers.path(buffer).open("r+b") as file:
        file.write(noise(step))
    manifest = named(noise(step), step)
    store.seal(manifest, buffer)
    return manifest


def send(store: ShardStore, manifest: Manifest, data: bytes) -> int:
    """Transfer a shard to the store. Return the number of chunks that were sent."""
    wanted = store.expect(manifest)
    for index in wanted:
        store.incoming.put(manifest.id, index, pieces(data)[index])
    store.admit(manifest.id)
    return len(wanted)


def commit(store: ShardStore, manifest: Manifest, *tiers: Tier) -> None:
    store.add_record(Record(manifest.generation, None, {manifest.shard: manifest.id}))
    for tier in tiers:
        store.advance(tier, manifest.generation)
    store.collect()


def whole(store: ShardStore, manifest: Manifest) -> bytes:
    return b"".join(store.read(manifest.id, index) for index in range(len(manifest.chunks)))


def test_a_buffer_under_a_watermark_is_not_writable(store: ShardStore) -> None:
    store.reserve("0", 2, SIZE)
    assert store.writable("0") == ["0-0", "0-1"]
    first = sealed(store, "0-0", 1)
    commit(store, first, Tier.LOCAL, Tier.PEER)
    assert store.writable("0") == ["0-1"]
    second = sealed(store, "0-1", 2)
    commit(store, second, Tier.LOCAL)
    assert store.writable("0") == [], "its copies may be lost with their node before the next ones are there"
    store.advance(Tier.PEER, second.generation)
    store.collect()
    assert store.writable("0") == ["0-0"]
    with pytest.raises(ValueError, match="holds another"):
        store.seal(named(b"xyz", 3), "0-1")


def test_a_pinned_shard_survives_a_collection(store: ShardStore) -> None:
    manifest = named(noise(1), 1)
    send(store, manifest, noise(1))
    store.start_incarnation(2, {})
    assert store.collect(pinned=[manifest.id]).manifests == {manifest.id}
    assert whole(store, manifest) == noise(1)
    store.collect()
    assert not store.manifests


def test_a_restarted_agent_recovers_the_store(store: ShardStore, tmp_path: Path) -> None:
    store.reserve("0", 2, SIZE)
    manifest = sealed(store, "0-1", 5)
    store.add_branch(Branch(1))
    store.start_incarnation(1, {})
    commit(store, manifest, Tier.LOCAL)
    copy = named(noise(9), 5, shard="1")
    assert send(store, copy, noise(9)) == 3
    again = ShardStore(tmp_path)
    assert again.inventory == store.inventory and again.marks == store.marks and again.incarnation == 1
    assert whole(again, manifest) == noise(5) and whole(again, copy) == noise(9)
    assert again.path(manifest.id).name == "0-1"
    assert again.writable("0") == ["0-0"]


def test_a_restarted_agent_drops_incomplete_shards(store: ShardStore, tmp_path: Path) -> None:
    store.reserve("0", 1, SIZE)
    half = named(noise(1), 1, shard="1")
    store.expect(half)
    store.incoming.put(half.id, 0, pieces(noise(1))[0])
    again = ShardStore(tmp_path)
    assert not again.manifests and again.writable("0") == ["0-0"]
    assert not list((tmp_path / "files").iterdir())


def test_a_manifest_without_data_is_dropped(store: ShardStore, tmp_path: Path) -> None:
    manifest = named(noise(1), 1)
    send(store, manifest, noise(1))
    store.path(manifest.id).unlink()
    assert not ShardStore(tmp_path).manifests and not list((tmp_path / "manifests").iterdir())


def test_existing_chunks_are_not_sent_again(store: ShardStore) -> None:
    store.reserve("0", 1, SIZE)
    old = sealed(store, "0-0", 1)
    data = noise(1)[: SIZE // 3] + noise(2)[SIZE // 3 :]
    assert send(store, named(data, 2), data) == 2
    store.drop(old.id)
    with store.buffers.path("0-0").open("r+b") as file:
        file.write(bytes(SIZE))
    assert whole(store, named(data, 2)) == data, "it has its own bytes"


def test_a_damaged_chunk_is_not_reused_from_another_shard(store: ShardStore) -> None:
    old = named(noise(1), 1)
    send(store, old, noise(1))
    with store.path(old.id).open("r+b") as file:
        file.write(b"\0" * 10)
    again = named(noise(1), 2)
    assert store.expect(again) == [0]


@pytest.mark.parametrize("data", [b"", b"b" * 4, b"a" * 3, b"a" * 5])
def test_a_chunk_that_does_not_match_its_digest_is_refused(store: ShardStore, data: bytes) -> None:
    manifest = named(b"a" * 12, 1)
    store.expect(manifest)
    with pytest.raises(Damaged):
        store.incoming.put(manifest.id, 0, data)
    with pytest.raises(Damaged):
        store.admit(manifest.id)
    for index in (-1, 3):
        with pytest.raises(Damaged):
            store.incoming.put(manifest.id, index, b"a" * 4)
    assert not store.manifests


def test_every_bit_flip_is_detected(store: ShardStore) -> None:
    data = noise(3, 96)
    manifest = named(data, 1)
    send(store, manifest, data)
    path = store.path(manifest.id)
    for bit in range(8 * len(data)):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        with pytest.raises(Damaged):
            whole(store, manifest)
    path.write_bytes(data)
    assert whole(store, manifest) == data


@pytest.mark.parametrize("length", [0, 1, 31, 32, 95])
def test_a_torn_file_is_detected(store: ShardStore, length: int) -> None:
    data = noise(3, 96)
    manifest = named(data, 1)
    send(store, manifest, data)
    store.path(manifest.id).write_bytes(data[:length])
    with pytest.raises(Damaged):
        whole(store, manifest)


def test_an_oversized_reservation_names_the_missing_bytes(
    store: ShardStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda folder: 2 * SIZE)
    with pytest.raises(memory.ShareExhausted) as refused:
        store.reserve("0", 3, SIZE)
    assert refused.value.missing == SIZE and not store.buffers.names("0")
    assert len(store.reserve("0", 2, SIZE)) == 2


def test_a_refused_shard_leaves_no_files(
    store: ShardStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda folder: 5)
    with pytest.raises(memory.ShareExhausted):
        store.expect(named(noise(1), 1))
    assert not list((tmp_path / "files").iterdir())


def test_pages_of_a_buffer_are_allocated_in_advance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Libc:
        touched: ClassVar[list[int]] = []

        @classmethod
        def madvise(cls, address: int, size: int, advice: int) -> int:
            cls.touched.append(size)
            return 0

    monkeypatch.setattr(memory, "_libc", Libc)
    memory.allocate(tmp_path / "buffer", SIZE)
    assert Libc.touched == [SIZE]


@pytest.mark.parametrize("there", [b"", b"needed"])
def test_a_file_that_cannot_grow_is_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bytes
) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        os.ftruncate(fd, size // 2)
        raise OSError(errno.ENOSPC, "full")

    path = tmp_path / "buffer"
    if there:
        path.write_bytes(there)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(memory.ShareExhausted):
        memory.allocate(path, SIZE)
    assert path.read_bytes() == there if there else not path.exists()


class ShardStoreMachine(RuleBasedStateMachine):
    """Compares the store with a simple model. Each shard that was stored and not dropped by `collect` must
    be readable with the same bytes.
    """

    manifests = Bundle("manifests")

    @initialize()
    def start(self) -> None:
        self.holder = tempfile.TemporaryDirectory()
        self.folder = Path(self.holder.name)
        self.store = ShardStore(self.folder)
        self.store.reserve("0", 3, 60)
        self.kept: dict[str, bytes] = {}
        self.step = 0

    @rule(target=manifests, content=st.integers(0, 3))
    def save(self, content: int) -> str:
        free = self.store.writable("0")
        if not free:
            return ""
        self.step += 1
        data = bytes([content]) * 40 + bytes([self.step % 251]) * 20
        with self.store.buffers.path(free[0]).open("r+b") as file:
            file.write(data)
        manifest = named(data, self.step)
        self.store.seal(manifest, free[0])
        self.kept[manifest.id] = data
        return manifest.id

    @rule(target=manifests, content=st.integers(0, 3), whole=st.booleans())
    def copy(self, content: int, whole: bool) -> str:
        self.step += 1
        data = bytes([content]) * 60
        manifest = named(data, self.step, shard="1")
        if not whole:
            self.store.expect(manifest)
            return ""
        send(self.store, manifest, data)
        self.kept[manifest.id] = data
        return manifest.id

    @rule(key=manifests)
    def drop_shard(self, key: str) -> None:
        self.store.drop(key)
        self.kept.pop(key, None)

    @rule(key=manifests, tiers=st.sets(st.sampled_from([Tier.LOCAL, Tier.PEER]), min_size=1))
    def commit(self, key: str, tiers: set[Tier]) -> None:
        if key not in self.kept:
            return
        manifest = self.store.manifests[key]
        self.store.add_record(Record(manifest.generation, None, {manifest.shard: key}))
        for tier in tiers:
            self.store.advance(tier, manifest.generation)
        for dropped in self.store.collect().manifests:
            del self.kept[dropped]

    @rule()
    def restart(self) -> None:
        self.store = ShardStore(self.folder)

    @invariant()
    def everything_kept_is_whole(self) -> None:
        if not hasattr(self, "store"):
            return
        assert set(self.store.manifests) == set(self.kept)
        for key, data in self.kept.items():
            assert whole(self.store, self.store.manifests[key]) == data

    @invariant()
    def nothing_else_stays(self) -> None:
        if not hasattr(self, "store"):
            return
        files = {path.name for path in (self.folder / "files").iterdir() if not path.name.startswith(".")}
        assert files <= set(self.kept)

    def teardown(self) -> None:
        if hasattr(self, "holder"):
            self.holder.cleanup()


TestShardStore = pytest.mark.timeout(cases(180))(ShardStoreMachine.TestCase)
TestShardStore.settings = settings(max_examples=cases(25), stateful_step_count=30)


def test_a_smaller_reservation_does_not_truncate_a_buffer(store: ShardStore) -> None:
    store.reserve("0", 2, SIZE)
    manifest = sealed(store, "0-0", 1)
    commit(store, manifest, Tier.LOCAL, Tier.PEER)
    store.reserve("0", 2, SIZE // 3)
    assert whole(store, manifest) == noise(1)
    assert store.buffers.path("0-1").stat().st_size == SIZE


def test_a_buffer_is_not_writable_during_its_digests(store: ShardStore) -> None:
    store.reserve("0", 2, SIZE)
    store.sealing.add("0-0")
    assert store.writable("0") == ["0-1"]
    store.reserve("1", 2, SIZE)
    assert store.buffers.path("0-0").exists() and not store.buffers.path("0-1").exists()


def test_a_seal_whose_manifest_cannot_be_written_has_no_effect(
    store: ShardStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.reserve("0", 1, SIZE)

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="no space"):
        patched.setattr("convoy_agents.tiercheck.shard_store.write_atomic", full)
        store.seal(named(noise(1), 1), "0-0")
    assert store.sealed_generations(["0"], 1) == {} and store.writable("0") == ["0-0"]
    store.seal(named(noise(1), 1), "0-0")


@pytest.mark.parametrize("pinned, left", [(False, 0), (True, 1)])
def test_incomplete_shards_of_an_earlier_incarnation_are_dropped(
    store: ShardStore, tmp_path: Path, pinned: bool, left: int
) -> None:
    late = named(noise(1), 1, shard="1")
    store.expect(late)
    assert store.unbuffered_bytes == SIZE
    store.start_incarnation(2, {})
    store.collect([late.id] if pinned else [])
    assert store.unbuffered_bytes == left * SIZE and len(list((tmp_path / "files").iterdir())) == left


def test_the_seen_incarnation_survives_a_restart(store: ShardStore, tmp_path: Path) -> None:
    store.record_seen(7)
    store.record_seen(3)
    assert ShardStore(tmp_path).seen == 7
