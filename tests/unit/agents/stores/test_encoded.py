"""Tests of encoded chunks in a store: every reader gets the plain bytes, whether the chunk was written
encoded or plain.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from tests.unit.agents.stores.places import (
    HOME,
    Place,
    chunk_of,
    noise,
    put,
    record_of,
    shard,
    volume_place,
)

from convoy_agents.tiercheck import digest, planes
from convoy_agents.tiercheck.stores.adopt import adopt
from convoy_agents.tiercheck.stores.errors import Damaged, StoreError
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.tiercheck.stores.upload import TransferLimits, download, upload, verify_chunks

STOP = threading.Event()


class AlwaysEncode:
    """A packer that encodes each chunk for which the encoded form is shorter, however long encoding takes."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []

    def pack(self, data: digest.Buffer) -> digest.Buffer:
        word = planes.best_word(data)
        found = planes.encode(data, word) if word else None
        return data if found is None else found

    def record_sent(self, length: int, size: int, seconds: float) -> None:
        assert seconds >= 0
        self.sent.append((length, size))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return volume_place(tmp_path)


def numbers(seed: int, count: int = 5000) -> bytes:
    return (np.random.default_rng(seed).standard_normal(count) * 1e-3).astype("<f4").tobytes() + b"tail"[
        : seed % 4
    ]


def pieces_of(count: int, seed: int = 0) -> list[bytes]:
    """Return `count` chunks. Two of three get shorter when they are encoded."""
    return [numbers(seed + one) if one % 3 else noise((seed, one), 20_000) for one in range(count)]


def stored_size(place: Place, data: bytes) -> int:
    """Return the size in bytes with which a chunk is stored."""
    found = place.blobs.get(f"{HOME}/chunks/{chunk_of(data).digest}")
    assert found is not None
    return len(found)


def test_a_chunk_round_trips_encoded_or_plain(place: Place) -> None:
    packing, plain, data = place.store(packer=AlwaysEncode()), place.store(), numbers(1)
    chunk = chunk_of(data)
    for store, shorter in [(packing, True), (plain, False), (packing, True), (packing, True)]:
        assert store.put_chunk(chunk, data) == stored_size(place, data)
        assert (stored_size(place, data) < 0.9 * len(data)) == shorter
        assert packing.get_chunk(chunk) == plain.get_chunk(chunk) == data
        assert set(store.chunks()) == {chunk.digest}
    assert chunk.fits(stored_size(place, data))


def test_an_incompressible_chunk_is_stored_plain(place: Place) -> None:
    packer = AlwaysEncode()
    store = place.store(packer=packer)
    store.put_chunk(chunk_of(noise(1)), noise(1))
    assert stored_size(place, noise(1)) == 300 and packer.sent == [(300, 300)]


def test_encoding_refuses_bytes_that_do_not_match_the_chunk(place: Place) -> None:
    store = place.store(packer=AlwaysEncode())
    with pytest.raises(Damaged):
        store.put_chunk(chunk_of(numbers(1)), numbers(2))
    assert not place.keys()


@pytest.mark.parametrize("at", [0, 5, 8, 13, 40, -1])
def test_damage_to_a_stored_encoded_chunk_is_detected(place: Place, at: int) -> None:
    store, data = place.store(packer=AlwaysEncode()), numbers(1)
    chunk, key = chunk_of(data), f"{HOME}/chunks/{chunk_of(data).digest}"
    store.put_chunk(chunk, data)
    found = bytearray(place.blobs.get(key) or b"")
    found[at] ^= 4
    for spoilt in (bytes(found), bytes(found[:at]), bytes(found) + b"\0", b"", bytes(len(data))):
        place.spoil(key, spoilt)
        with pytest.raises(Damaged, match=chunk.digest):
            store.get_chunk(chunk)
    assert verify_chunks(store, [chunk], lambda _: None, stop=STOP).keys() == {chunk.digest}


def test_an_encoded_chunk_under_another_name_is_refused(place: Place) -> None:
    store = place.store(packer=AlwaysEncode())
    one, other = numbers(4), numbers(8)
    for data in (one, other):
        store.put_chunk(chunk_of(data), data)
    found = place.blobs.get(f"{HOME}/chunks/{chunk_of(other).digest}")
    assert found is not None
    place.spoil(f"{HOME}/chunks/{chunk_of(one).digest}", found)
    with pytest.raises(Damaged):
        store.get_chunk(chunk_of(one))


def fetched(store: Store, pieces: list[bytes]) -> list[bytes]:
    found: dict[int, bytes] = {}
    download(store, shard(1, pieces), found.__setitem__, stop=STOP)
    return [found[index] for index in range(len(pieces))]


def test_an_interrupted_upload_resumes_with_or_without_encoding(place: Place) -> None:
    pieces = pieces_of(9)
    reads: list[int] = []

    def breaks(index: int) -> bytes:
        if index == 5:
            raise StoreError("it breaks off", retriable=False)
        return pieces[index]

    with pytest.raises(StoreError, match="breaks off"):
        upload(
            place.store(packer=AlwaysEncode()),
            shard(1, pieces),
            breaks,
            stop=STOP,
            limits=TransferLimits(threads=1),
        )
    before = {index: stored_size(place, pieces[index]) for index in range(5)}
    assert 0 < sum(size < len(pieces[index]) for index, size in before.items()) < 5

    def read(index: int) -> bytes:
        reads.append(index)
        return pieces[index]

    done = upload(place.store(), shard(1, pieces), read, stop=STOP)
    assert sorted(reads) == [5, 6, 7, 8], "what is there in one form is there"
    assert done.wire_bytes == done.sent_bytes == sum(len(pieces[index]) for index in reads)
    assert before == {index: stored_size(place, pieces[index]) for index in range(5)}
    for store in (place.store(), place.store(packer=AlwaysEncode())):
        assert fetched(store, pieces) == pieces


def test_an_upload_reports_the_encoded_bytes_sent(place: Place) -> None:
    pieces, packer = pieces_of(9), AlwaysEncode()
    done = upload(place.store(packer=packer), shard(1, pieces), pieces.__getitem__, stop=STOP)
    assert done.sent_bytes == sum(map(len, pieces)) > done.wire_bytes
    assert (
        done.wire_bytes
        == sum(size for _, size in packer.sent)
        == sum(stored_size(place, one) for one in pieces)
    )
    assert sorted(length for length, _ in packer.sent) == sorted(map(len, pieces))


def test_the_rate_limit_counts_encoded_bytes_before_the_put(place: Place) -> None:
    waited: list[int] = []

    def pace(size: int) -> None:
        assert not place.keys()
        waited.append(size)

    size = place.store(packer=AlwaysEncode()).put_chunk(chunk_of(numbers(1)), numbers(1), pace)
    assert waited == [size] and size < len(numbers(1))


def test_a_job_adopts_encoded_chunks_of_another_job(tmp_path: Path) -> None:
    blobs = volume_place(tmp_path).blobs
    pieces = pieces_of(4)
    source = Store(blobs, "team", "source", packer=AlwaysEncode())
    manifest = put(source, shard(7, pieces), pieces)
    assert source.commit(record_of(manifest))
    target = Store(blobs, "team", "target")
    adopt(Store(blobs, "team", "source"), target, 0, STOP)
    (own,) = target.inventory().manifests.values()
    assert [target.get_chunk(chunk) for chunk in own.chunks] == pieces
