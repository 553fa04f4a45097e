"""Tests of the choice to encode chunks. Chunks must be encoded only on links that are slower than the
codec.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_agents.tiercheck import link, planes
from convoy_agents.tiercheck.link import (
    HALF_LIFE,
    MAX_LINKS,
    PROBE_EVERY,
    Costs,
    Encoders,
    Link,
    Links,
    Mean,
    encoding_pays,
)

MB = 2**20
NS = 1e-9
GRADIENTS = (np.random.default_rng(0).standard_normal(50_000) * 1e-3).astype("<f4").tobytes()
NOISE = np.random.default_rng(0).bytes(200_000)
CHUNK = 4 * MB


def mean(value: float) -> Mean:
    return Mean().add(value * MB, MB)


@pytest.mark.parametrize(
    ("send", "encode", "saved", "ahead", "plain", "wanted"),
    [
        # Sending takes 10 ns per byte and encoding 2.5 ns. Saving 16 % of 10 ns is less than 2.5 ns, saving
        # 32 % is more.
        (10, 2.5, 0.16, 0, 0, False),
        (10, 2.5, 0.32, 0, 0, True),
        (100, 2.5, 0.16, 0, 0, True),
        (1, 2.5, 0.9, 0, 0, False),
        # Six other chunks must be encoded first.
        (100, 2.5, 0.16, 6, 0, False),
        # Encoding saves nothing, so the chunk must be sent plain even on a very slow link.
        (1e6, 2.5, 0.0, 0, 0, False),
        # After PROBE_EVERY plain chunks a chunk is encoded to measure again.
        (1, 2.5, 0.16, 0, PROBE_EVERY - 1, False),
        (1, 2.5, 0.16, 9, PROBE_EVERY, True),
    ],
)  # fmt: skip
def test_a_chunk_is_encoded_if_that_saves_time(
    send: float, encode: float, saved: float, ahead: float, plain: int, wanted: bool
) -> None:
    costs = Costs(mean(send * NS), mean(encode * NS), mean(saved), plain)
    assert encoding_pays(costs, ahead) == wanted


def test_unknown_costs_are_measured() -> None:
    assert encoding_pays(Costs(), 5)
    assert not encoding_pays(Costs(encode=mean(1), saved=mean(0.5))), "until something has been sent"


@given(st.floats(1e-12, 1e-3), st.floats(1e-12, 1e-3), st.floats(0, 1), st.floats(0, 100))
def test_a_slower_link_never_disables_encoding(
    send: float, encode: float, saved: float, ahead: float
) -> None:
    costs = Costs(mean(send), mean(encode), mean(saved))
    slower = Costs(mean(2 * send), mean(encode), mean(saved))
    assert encoding_pays(slower, ahead) >= encoding_pays(costs, ahead)
    assert encoding_pays(costs, ahead) <= encoding_pays(costs)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, CHUNK)), min_size=1, max_size=50))
def test_a_mean_is_within_the_measured_values(measured: list[tuple[float, int]]) -> None:
    found = Mean()
    for value, size in measured:
        found = found.add(value * size, size)
    values = [value for value, _ in measured]
    assert found.value is not None
    assert min(values) - 1e-9 <= found.value <= max(values) + 1e-9


def test_a_mean_follows_changes_weighted_by_size() -> None:
    found = Mean().add(1.0 * HALF_LIFE, HALF_LIFE)
    for _ in range(10):
        found = found.add(1000.0 * 1000, 1000)
    assert found.value is not None and found.value < 1.5
    for _ in range(6 * HALF_LIFE // CHUNK):
        found = found.add(3.0 * CHUNK, CHUNK)
    assert found.value is not None and abs(found.value - 3.0) < 0.1


@pytest.fixture
def counted() -> list[tuple[int, int]]:
    return []


@pytest.fixture
def way(counted: list[tuple[int, int]]) -> Link:
    return Link(Encoders(1), lambda length, size: counted.append((length, size)))


def go(way: Link, data: bytes, seconds_per_byte: float) -> int:
    body = way.pack(data)
    assert planes.unpack(body, len(data)) == data
    way.record_sent(len(data), len(body), seconds_per_byte * len(body))
    return len(body)


def test_a_slow_link_encodes_all_chunks_and_a_fast_one_only_probes(
    way: Link, counted: list[tuple[int, int]]
) -> None:
    assert all(go(way, GRADIENTS, 1.0) < 0.9 * len(GRADIENTS) for _ in range(5))
    assert counted[0] == (len(GRADIENTS), counted[-1][1])
    fast = Link(Encoders(1), lambda *_: None)
    sizes = [go(fast, GRADIENTS, 1e-15) for _ in range(3 * (PROBE_EVERY + 1))]
    encoded = [number for number, size in enumerate(sizes) if size < len(GRADIENTS)]
    assert encoded == [0, PROBE_EVERY + 1, 2 * (PROBE_EVERY + 1)]


def test_encoding_follows_changes_of_the_link_s_speed(way: Link) -> None:
    def turns(seconds_per_byte: float, wanted: bool) -> bool:
        for _ in range(20 * HALF_LIFE // len(GRADIENTS)):
            way.record_sent(CHUNK, CHUNK, seconds_per_byte * CHUNK)
            if encoding_pays(way.costs) == wanted:
                return True
        return False

    go(way, GRADIENTS, 1e-15)
    assert turns(1.0, True) and turns(1e-15, False) and turns(1.0, True)


def test_incompressible_chunks_are_sent_plain(way: Link) -> None:
    assert [go(way, NOISE, 1.0) for _ in range(3)] == [len(NOISE)] * 3
    assert not encoding_pays(way.costs)


def test_the_number_of_threads_limits_concurrent_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, lock = 2, threading.Lock()
    now, most, meet = [0], [0], threading.Barrier(threads)
    encode = planes.encode

    def slow(data: bytes, word: int) -> bytes | None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        meet.wait(20)
        with lock:
            now[0] -= 1
        return encode(data, word)

    monkeypatch.setattr(link.planes, "encode", slow)
    encoders = Encoders(threads)
    ways = [Link(encoders, lambda *_: None) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda way: way.pack(GRADIENTS), ways))
    assert most[0] == threads and len(set(found)) == 1
    assert encoders.ahead == 0


async def test_encoding_does_not_block_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    may = threading.Event()
    encode = planes.encode

    def held(data: bytes, word: int) -> bytes | None:
        may.wait(20)
        return encode(data, word)

    monkeypatch.setattr(link.planes, "encode", held)
    encoders = Encoders(1)
    links = Links(encoders, lambda *_: None)
    first = asyncio.create_task(links.to("one").pack_async(GRADIENTS))
    second = asyncio.create_task(links.to("two").pack_async(GRADIENTS))
    await asyncio.sleep(0)
    assert encoders.ahead == 2
    # The cancelled call must leave the queue, so that later calls do not wait for it.
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert encoders.ahead == 1
    may.set()
    assert len(await first) < len(GRADIENTS)


def test_the_number_of_stored_links_is_bounded() -> None:
    links = Links(Encoders(1), lambda *_: None)
    first, second = links.to("first"), links.to("second")
    for number in range(MAX_LINKS - 1):
        links.to(str(number))
        assert links.to("second") is second
    assert links.to("first") is not first
