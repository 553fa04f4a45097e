"""Tests of transfers of shards over a faulty network: each byte is checked, and no chunk is sent twice."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.agents import fault_proxy
from tests.unit.agents.fault_proxy import BUCKET, FaultProxy

from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.stores.errors import Damaged, Stopped, StoreError
from convoy_agents.tiercheck.stores.s3 import S3, Bucket, ClientSettings, Credentials
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.tiercheck.stores.upload import (
    Rate,
    Retries,
    TransferLimits,
    download,
    upload,
    verify_chunks,
)
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Chunk, Manifest

AT_ONCE = Retries(attempts=5, budget=50, first_seconds=0.0, cap_seconds=0.0)
SIZE = 1000


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with fault_proxy.s3_server() as port:
        yield port


@pytest.fixture
def proxy(server: int) -> Iterator[FaultProxy]:
    found = FaultProxy(server)
    yield found
    found.close()


@pytest.fixture
def prefix() -> str:
    return f"part-{uuid4()}"


@pytest.fixture
def store(proxy: FaultProxy, prefix: str) -> Store:
    keys = Credentials("key", "secret")
    blobs = S3(
        Bucket(BUCKET, endpoint_url=proxy.url, addressing="path", prefix=prefix),
        keys,
        ClientSettings(attempts=1),
    )
    return Store(blobs, "team", "uid-1")


def pieces_of(count: int, seed: int = 0) -> list[bytes]:
    return [random.Random(f"{seed} {number}").randbytes(SIZE) for number in range(count)]


def shard(pieces: list[bytes]) -> Manifest:
    chunks = tuple(Chunk(digest.digest(piece), len(piece)) for piece in pieces)
    return Manifest(Generation(1, 1), "0", chunks, sum(map(len, pieces)))


def with_limits(more: dict[str, Any]) -> dict[str, Any]:
    """Return `more`, the arguments of a transfer, with its limits collected in one TransferLimits."""
    limits = {name: more.pop(name) for name in ("threads", "bytes_per_second", "retries") if name in more}
    limits = {"retries": AT_ONCE, **limits}
    return {"stop": threading.Event(), "limits": TransferLimits(**limits), **more}


def send(store: Store, pieces: list[bytes], **more: Any) -> Any:
    return upload(store, shard(pieces), pieces.__getitem__, **with_limits(more))


def fetch(store: Store, pieces: list[bytes], **more: Any) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    download(store, shard(pieces), found.__setitem__, **with_limits(more))
    return found


def puts(proxy: FaultProxy, folder: str = "chunks") -> int:
    return sum(one.method == "PUT" and f"/{folder}/" in one.path for one in proxy.seen)


@pytest.mark.parametrize("threads", [1, 8])
def test_a_shard_round_trips(store: Store, threads: int) -> None:
    pieces = pieces_of(20)
    done = send(store, pieces, threads=threads)
    assert (done.sent_bytes, done.skipped_bytes) == (20 * SIZE, 0)
    assert fetch(store, pieces, threads=threads) == dict(enumerate(pieces))
    assert fetch(store, pieces, wanted=[3, 7]) == {3: pieces[3], 7: pieces[7]}
    assert store.inventory().manifests == {shard(pieces).id: shard(pieces)}


def test_equal_chunks_are_sent_once_and_fetched_once(store: Store, proxy: FaultProxy) -> None:
    pieces = [b"a" * SIZE, b"b" * SIZE] * 3
    done = send(store, pieces)
    assert (done.sent_bytes, done.skipped_bytes, puts(proxy)) == (2 * SIZE, 4 * SIZE, 2)
    proxy.seen.clear()
    assert fetch(store, pieces) == dict(enumerate(pieces))
    assert len(proxy.seen) == 2


def test_an_interrupted_upload_resumes(store: Store, proxy: FaultProxy) -> None:
    pieces = pieces_of(10)
    proxy.inject(fault_proxy.refuse(403, "AccessDenied"), "PUT", shard(pieces).chunks[6].digest)
    with pytest.raises(StoreError, match="AccessDenied"):
        send(store, pieces, threads=1)
    assert not store.inventory().manifests, "it names chunks that are not there"
    proxy.heal()
    proxy.seen.clear()
    done = send(store, pieces)
    assert (done.sent_bytes, done.skipped_bytes, puts(proxy)) == (4 * SIZE, 6 * SIZE, 4)
    proxy.seen.clear()
    assert send(store, pieces).sent_bytes == 0 and puts(proxy) == 0


def test_a_chunk_known_to_be_damaged_is_sent_again(store: Store, prefix: str) -> None:
    pieces = pieces_of(3)
    send(store, pieces)
    bad = shard(pieces).chunks[1].digest
    fault_proxy.spoil(f"{prefix}/team/uid-1/chunks/{bad}", b"\0" * SIZE)
    with pytest.raises(Damaged, match=bad):
        fetch(store, pieces)
    assert send(store, pieces, broken=[bad]).sent_bytes == SIZE
    assert fetch(store, pieces) == dict(enumerate(pieces))


def test_an_upload_refuses_data_that_does_not_match_the_manifest(store: Store) -> None:
    pieces = pieces_of(3)
    with pytest.raises(Damaged):
        upload(
            store,
            shard(pieces),
            lambda index: pieces[0],
            stop=threading.Event(),
            limits=TransferLimits(threads=1),
        )
    assert set(store.chunks()) == {shard(pieces).chunks[0].digest}
    assert not store.inventory().manifests


@pytest.mark.parametrize("fault", [fault_proxy.refuse(503), fault_proxy.drop, fault_proxy.lose])
def test_retriable_failures_are_retried(store: Store, proxy: FaultProxy, fault: fault_proxy.Fault) -> None:
    pieces = pieces_of(4)
    proxy.inject(fault, times=4)
    done = send(store, pieces)
    assert done.sent_bytes == 4 * SIZE
    proxy.inject(fault, times=4)
    assert fetch(store, pieces) == dict(enumerate(pieces))


def test_the_attempts_of_an_operation_are_limited(store: Store, proxy: FaultProxy) -> None:
    pieces = pieces_of(1)
    proxy.inject(fault_proxy.refuse(503), "PUT")
    with pytest.raises(StoreError, match="503") as failed:
        send(store, pieces)
    assert failed.value.retriable and puts(proxy) == AT_ONCE.attempts


def test_the_retry_budget_limits_requests_to_a_failed_store(store: Store, proxy: FaultProxy) -> None:
    pieces = pieces_of(40)
    proxy.inject(fault_proxy.refuse(503), "PUT")
    with pytest.raises(StoreError):
        send(store, pieces, retries=Retries(attempts=1000, budget=10, first_seconds=0.0, cap_seconds=0.0))
    assert puts(proxy) <= 10 + 8, "the retries, and the first attempt of each thread"


def test_permanent_failures_are_not_retried(store: Store, proxy: FaultProxy) -> None:
    proxy.inject(fault_proxy.refuse(403, "AccessDenied"), "PUT")
    with pytest.raises(StoreError, match="AccessDenied"):
        send(store, pieces_of(3), threads=1)
    assert puts(proxy) == 1


def test_a_truncated_body_is_read_again(store: Store, proxy: FaultProxy) -> None:
    pieces = pieces_of(3)
    send(store, pieces)
    proxy.inject(fault_proxy.cut, "GET", "/chunks/", times=3)
    assert fetch(store, pieces) == dict(enumerate(pieces))
    proxy.inject(fault_proxy.cut, "GET", "/chunks/")
    with pytest.raises(StoreError, match="cannot be reached") as failed:
        fetch(store, pieces)
    assert failed.value.retriable


def test_a_bit_flip_in_transit_is_detected(store: Store, proxy: FaultProxy) -> None:
    pieces = pieces_of(3)
    send(store, pieces)
    proxy.inject(fault_proxy.flip, "GET", "/chunks/", times=1)
    assert fetch(store, pieces) == dict(enumerate(pieces)), "it is read once more"
    proxy.inject(fault_proxy.flip, "GET", shard(pieces).chunks[2].digest)
    written: dict[int, bytes] = {}
    with pytest.raises(Damaged, match=shard(pieces).chunks[2].digest):
        download(
            store,
            shard(pieces),
            written.__setitem__,
            stop=threading.Event(),
            limits=TransferLimits(retries=AT_ONCE),
        )
    assert 2 not in written


def test_a_duplicated_request_changes_nothing(store: Store, proxy: FaultProxy) -> None:
    pieces = pieces_of(3)
    proxy.inject(fault_proxy.duplicate)
    send(store, pieces)
    assert fetch(store, pieces) == dict(enumerate(pieces))


def test_the_number_of_threads_limits_chunks_in_memory(store: Store, proxy: FaultProxy) -> None:
    pieces = pieces_of(16)
    threads = 4
    proxy.inject(fault_proxy.meet(threading.Barrier(threads)), "PUT", "/chunks/")
    reading: Counter[str] = Counter()
    lock = threading.Lock()
    most = [0]

    def read(index: int) -> bytes:
        with lock:
            sent = sum(one.method == "PUT" and "/chunks/" in one.path for one in proxy.seen)
            reading["read"] += 1
            most[0] = max(most[0], reading["read"] - sent)
        return pieces[index]

    done = upload(store, shard(pieces), read, stop=threading.Event(), limits=TransferLimits(threads=threads))
    assert done.sent_bytes == 16 * SIZE, "as many are sent at once as there are threads, or this hangs"
    assert most[0] <= threads


@pytest.mark.parametrize("moves", [send, fetch], ids=["upload", "download"])
def test_a_transfer_stops_on_the_stop_flag(
    store: Store, proxy: FaultProxy, moves: Callable[..., Any]
) -> None:
    pieces, stop = pieces_of(10), threading.Event()
    send(store, pieces)
    fresh = pieces if moves is fetch else pieces_of(10, seed=1)
    proxy.seen.clear()

    def stopping(request: fault_proxy.Request, forward: fault_proxy.Forward) -> fault_proxy.Response:
        stop.set()
        return forward(request)

    proxy.inject(stopping, path=shard(fresh).chunks[3].digest)
    with pytest.raises(Stopped):
        moves(store, fresh, stop=stop, threads=1)
    assert sum("/chunks/" in one.path for one in proxy.seen) == 4
    with pytest.raises(Stopped):
        moves(store, fresh, stop=stop)


@pytest.mark.parametrize("waits_for", ["rate", "retry"])
def test_a_waiting_transfer_stops_on_the_stop_flag(store: Store, proxy: FaultProxy, waits_for: str) -> None:
    class Stop:
        """A stop flag that becomes set when a thread waits for it."""

        def __init__(self) -> None:
            self.waited = False

        def wait(self, timeout: float) -> bool:
            self.waited = True
            return True

        def is_set(self) -> bool:
            return self.waited

    slow: dict[str, Any] = {"bytes_per_second": 0.001}
    if waits_for == "retry":
        proxy.inject(fault_proxy.refuse(503), "PUT")
        slow = {"retries": Retries(first_seconds=1e6, cap_seconds=1e6)}
    with pytest.raises(Stopped):
        send(store, pieces_of(2), stop=Stop(), **slow)


def test_other_threads_stop_when_one_fails(store: Store, proxy: FaultProxy) -> None:
    pieces = pieces_of(8)
    bad = shard(pieces).chunks[1].digest
    proxy.inject(fault_proxy.refuse(503), "PUT")
    proxy.inject(fault_proxy.refuse(403, "AccessDenied"), "PUT", bad)
    with pytest.raises(StoreError, match="AccessDenied"):
        send(store, pieces, threads=2, retries=Retries(first_seconds=1e6, cap_seconds=1e6))


@given(
    st.lists(st.tuples(st.floats(0, 10), st.integers(1, 10_000)), min_size=1, max_size=40), st.floats(1, 1e5)
)
def test_the_rate_limit_holds_for_any_sequence_of_requests(
    requests: list[tuple[float, int]], rate: float
) -> None:
    now = [0.0]
    bucket = Rate(rate, lambda: now[0])
    ends: list[tuple[float, float, int]] = []
    for pause, size in requests:
        now[0] += pause
        ends.append((now[0], now[0] + bucket.delay(size), size))
    for number, (start, _, _) in enumerate(ends):
        moved = sum(size for _, _, size in ends[number:])
        assert moved / rate <= (ends[-1][1] - start) * (1 + 1e-9) + 1e-6
    assert all(end > start for start, end, _ in ends)
    assert Rate(0).delay(10**12) == 0


def test_the_rate_limit_covers_all_threads_together(store: Store) -> None:
    class RecordingFlag:
        """A stop flag that is never set. It records the duration of each wait in seconds."""

        def __init__(self) -> None:
            self.waits: list[float] = []

        def wait(self, timeout: float) -> bool:
            self.waits.append(timeout)
            return False

        def is_set(self) -> bool:
            return False

    stop = RecordingFlag()
    send(store, pieces_of(4), stop=stop, threads=4, bytes_per_second=40 * SIZE)
    assert stop.waits and max(stop.waits) <= 0.25
    free = RecordingFlag()
    send(store, pieces_of(4, seed=2), stop=free)
    assert not free.waits


def test_verification_checks_all_chunks_and_names_the_damaged_ones(
    store: Store, proxy: FaultProxy, prefix: str
) -> None:
    pieces = pieces_of(6)
    send(store, pieces)
    chunks = shard(pieces).chunks
    fault_proxy.spoil(f"{prefix}/team/uid-1/chunks/{chunks[1].digest}", b"\0" * SIZE)
    proxy.inject(fault_proxy.refuse(404, "NoSuchKey"), "GET", chunks[4].digest)
    proxy.inject(fault_proxy.flip, "GET", chunks[5].digest, times=1)
    proxy.inject(fault_proxy.refuse(503), "GET", chunks[0].digest, times=2)
    verified: Counter[Chunk] = Counter()
    found = verify_chunks(
        store,
        [*chunks, *chunks],
        lambda chunk: verified.update([chunk]),
        stop=threading.Event(),
        limits=TransferLimits(retries=AT_ONCE),
    )
    assert found.keys() == {chunks[1].digest, chunks[4].digest}
    assert "is damaged" in found[chunks[1].digest] and "is missing in" in found[chunks[4].digest]
    assert verified == Counter(chunks)


def test_a_store_failure_ends_the_verification_and_is_no_damage(store: Store, proxy: FaultProxy) -> None:
    pieces = pieces_of(3)
    send(store, pieces)
    proxy.inject(fault_proxy.refuse(403, "AccessDenied"), "GET", "/chunks/")
    with pytest.raises(StoreError, match="AccessDenied"):
        verify_chunks(
            store,
            shard(pieces).chunks,
            lambda _: None,
            stop=threading.Event(),
            limits=TransferLimits(retries=AT_ONCE),
        )
    over = threading.Event()
    over.set()
    with pytest.raises(Stopped):
        verify_chunks(store, shard(pieces).chunks, lambda _: None, stop=over)
