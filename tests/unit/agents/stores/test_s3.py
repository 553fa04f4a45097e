"""Tests of the S3 client when the server fails or when the network fails."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest
from tests.unit.agents import fault_proxy
from tests.unit.agents.fault_proxy import BUCKET, FaultProxy
from tests.unit.agents.stores.places import (
    KEYS,
    bucket,
    chunk_of,
    noise,
    put,
    record_of,
    s3_place,
    shard,
)

from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tiercheck.stores.probe import probe
from convoy_agents.tiercheck.stores.s3 import Credentials
from convoy_agents.tiercheck.stores.upload import upload


def test_a_commit_succeeds_although_its_response_is_lost(proxy: FaultProxy) -> None:
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


def test_a_commit_succeeds_although_its_request_is_duplicated(proxy: FaultProxy) -> None:
    store = s3_place(proxy.url).store()
    record = record_of(put(store, shard(1, [noise(1)]), [noise(1)]))
    proxy.inject(fault_proxy.duplicate, "PUT", "/records/")
    assert store.commit(record)
    assert not store.commit(replace(record, saved=1.0))
    assert store.inventory().records == {record.generation: record}


def test_one_of_two_racing_commits_wins(proxy: FaultProxy) -> None:
    store = s3_place(proxy.url).store()
    manifest = put(store, shard(1, [noise(1)]), [noise(1)])
    proxy.inject(fault_proxy.meet(threading.Barrier(2)), "PUT", "/records/", times=2)
    rivals = [record_of(manifest, saved=float(number)) for number in range(2)]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(store.commit, rivals))
    assert sorted(done) == [False, True]
    assert store.inventory().records == {manifest.generation: rivals[done.index(True)]}


def test_the_probe_detects_a_server_that_lets_two_commits_win(proxy: FaultProxy) -> None:
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
        (fault_proxy.drop, "cannot be reached", True),
        (fault_proxy.refuse(409, "ConditionalRequestConflict"), "tries again", True),
        (fault_proxy.refuse(400, "BadDigest"), "sends them again", True),
        (fault_proxy.refuse(403, "AccessDenied"), "s3:PutObject", False),
        (fault_proxy.refuse(403, "InvalidAccessKeyId", "an-access-key a-secret-key"), "Secret", False),
        (fault_proxy.refuse(400, "ExpiredToken", "a-session-token"), "expired", False),
        (fault_proxy.refuse(404, "NoSuchBucket"), "no such bucket", False),
        (fault_proxy.refuse(403, "RequestTimeTooSkewed"), "clock is wrong; set it", False),
        (fault_proxy.refuse(507, "InsufficientStorage"), "is full", False),
        (fault_proxy.refuse(418, "Teapot"), "418 Teapot", False),
    ],
)
def test_an_error_names_the_bucket_the_operation_and_the_remedy(
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


def test_a_truncated_response_is_a_retriable_error(proxy: FaultProxy) -> None:
    blobs = bucket(proxy.url)
    blobs.put("a/b", noise(1))
    proxy.inject(fault_proxy.cut)
    for use in (lambda: blobs.names("a"), lambda: blobs.get("a/b")):
        with pytest.raises(StoreError) as failed:
            use()
        assert failed.value.retriable


def test_a_request_to_an_unresponsive_store_times_out(proxy: FaultProxy) -> None:
    over = threading.Event()

    def stall(request: fault_proxy.Request, forward: fault_proxy.Forward) -> None:
        over.wait(50)

    proxy.inject(stall)
    with pytest.raises(StoreError, match="ReadTimeoutError") as failed:
        bucket(proxy.url, read_seconds=0.1).get("a/b")
    over.set()
    assert failed.value.retriable


def test_chunks_are_sent_again_if_the_store_cannot_copy(proxy: FaultProxy) -> None:
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
    assert store.reusable(store.chunks()) == {chunk_of(noise(1)).digest: True}


def test_credentials_can_be_renewed(proxy: FaultProxy) -> None:
    blobs = bucket(proxy.url)
    blobs.put("a/b", b"1")
    blobs.renew(Credentials("another-key", "secret"))
    blobs.put("a/b", b"2")
    assert ["another-key" in one.headers["authorization"] for one in proxy.seen] == [False, True]


def test_a_put_sends_the_configured_checksum(proxy: FaultProxy) -> None:
    bucket(proxy.url, checksum="md5").put("a/b", b"")
    bucket(proxy.url).put("a/b", b"")
    sent = [{"content-md5", "x-amz-checksum-crc32"} & one.headers.keys() for one in proxy.seen]
    assert sent == [{"content-md5"}, {"x-amz-checksum-crc32"}]
