"""Tests of encoded chunks: they decode to the original bytes, and any other input is refused."""

from __future__ import annotations

import random
import struct
import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import assume, example, given
from hypothesis import strategies as st

from convoy_agents.tiercheck import planes
from convoy_agents.tiercheck.digest import Damaged
from convoy_controllers.checkpoint.records import MAX_CHUNK, MIN_ENCODED_BYTES, Chunk

HEAD = 12


def gradients(count: int, dtype: str = "<f4", scale: float = 1e-3) -> bytes:
    """Return the bytes of `count` numbers that are distributed like gradients."""
    return (np.random.default_rng(count).standard_normal(count) * scale).astype(dtype).tobytes()


def bfloat16(count: int) -> bytes:
    """Return the bytes of `count` bfloat16 numbers: the upper halves of float32 numbers."""
    return (np.frombuffer(gradients(count), "<u4") >> 16).astype("<u2").tobytes()


def encoded(data: bytes, word: int = 4) -> bytes:
    found = planes.encode(data, word)
    assert found is not None
    return found


SPECIAL = struct.pack("<8f", float("nan"), -float("nan"), float("inf"), -0.0, 0.0, 1e-45, -1e38, 1.0)
SIGNALLING = struct.pack("<4I", 0x7FA00001, 0xFFA00001, 0x7FC00000, 0xFFFFFFFF)
CHUNKS = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda kind, count, rest: kind(count) + rest,
        st.sampled_from([gradients, bfloat16, bytes, lambda count: gradients(count, "<f8")]),
        st.integers(0, 5000),
        st.binary(max_size=7),
    ),
    st.builds(lambda one, times: one * times + b"x", st.binary(max_size=70), st.integers(0, 900)),
)


@given(CHUNKS, st.sampled_from(planes.WORDS))
@example(SPECIAL * 40, 4)
@example(SIGNALLING * 40, 4)
@example(SPECIAL * 40 + b"x", 2)
def test_a_chunk_round_trips_bit_for_bit(data: bytes, word: int) -> None:
    found = planes.encode(data, word)
    if found is not None:
        assert planes.decode(found, len(data)) == data
        assert planes.unpack(memoryview(found), len(data)) == data
        assert len(found) < len(data), "or it could not be told from the chunk itself"
        assert Chunk("", len(data)).fits(len(found))
    assert planes.unpack(data, len(data)) == data


@pytest.mark.parametrize("word", planes.WORDS)
@pytest.mark.parametrize("rest", range(4))
def test_bytes_after_the_last_whole_word_round_trip(word: int, rest: int) -> None:
    data = gradients(3000) + b"abc"[:rest]
    assert planes.decode(encoded(data, word), len(data)) == data


def test_a_chunk_of_maximum_length_is_encoded() -> None:
    data = bytes(2 * MAX_CHUNK)
    assert planes.decode(encoded(data), len(data)) == data


@pytest.mark.parametrize(
    ("data", "word", "most"),
    [(gradients(2**18), 4, 0.86), (bfloat16(2**19), 2, 0.72), (bytes(2**20), 2, 0.001)],
    ids=["float32", "bfloat16", "zeros"],
)
def test_the_word_size_with_the_best_ratio_is_selected(data: bytes, word: int, most: float) -> None:
    assert planes.best_word(data) == word
    assert len(encoded(data, word)) <= most * len(data)
    other = planes.encode(data, 6 - word)
    assert other is None or len(encoded(data, word)) <= len(other)


def test_a_chunk_of_mixed_types_uses_the_word_size_of_the_majority() -> None:
    data = gradients(3 * 2**16) + bfloat16(2**16) + b"{}" * 500
    assert planes.best_word(data) == 4
    assert planes.decode(encoded(data), len(data)) == data


@pytest.mark.parametrize("data", [b"", b"a", random.Random(1).randbytes(10_001), gradients(4)], ids=len)
def test_a_chunk_that_hardly_shrinks_is_not_encoded(data: bytes) -> None:
    assert planes.encode(data, 4) is None and planes.encode(data, 2) is None
    assert planes.best_word(data) == 0 or len(data) < MIN_ENCODED_BYTES


@given(st.data())
def test_damage_is_detected_or_decodes_to_the_same_length(data: st.DataObject) -> None:
    chunk = gradients(600) + b"x"
    found = bytearray(encoded(chunk))
    at, bit = data.draw(st.integers(0, len(found) - 1)), data.draw(st.integers(0, 7))
    found[at] ^= 1 << bit
    try:
        other = planes.decode(found, len(chunk))
    except Damaged:
        return
    assert len(other) == len(chunk) and at >= HEAD + 16, "the head says nothing twice"


@given(st.integers(0, 2000), st.booleans())
def test_truncated_or_extended_input_is_refused(by: int, longer: bool) -> None:
    chunk = gradients(600)
    found = encoded(chunk)
    wrong = found + bytes(by + 1) if longer else found[: -by - 1]
    # Input that has the length of the plain chunk is always treated as a plain chunk. So this length is not
    # tested here.
    assume(len(wrong) != len(chunk))
    with pytest.raises(Damaged):
        planes.unpack(wrong, len(chunk))


@given(st.binary(max_size=300), st.integers(0, 400))
def test_any_other_bytes_are_refused(data: bytes, length: int) -> None:
    if len(data) != length:
        with pytest.raises(Damaged):
            planes.unpack(data, length)


@pytest.mark.parametrize("length", [0, 1, 2399, 2401, 2404, MAX_CHUNK, 2**40])
def test_a_chunk_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(Damaged):
        planes.decode(encoded(gradients(600)), length)


def frame(content: bytes, **more: bool) -> bytes:
    return zstandard.ZstdCompressor(level=19, **more).compress(content)


def chunk_with_planes(length: int, *kept: bytes, flags: int = 0b11) -> bytes:
    """Return an encoded chunk of two-byte words whose stored planes are `kept`."""
    head = struct.pack("<4sBBHI", b"CVP\x01", 2, flags, 0, length)
    return head + struct.pack("<2I", *map(len, kept)) + b"".join(kept)


GOOD = frame(bytes(2000))
HUGE = bytes.fromhex("28b52ffd e0") + (2**40).to_bytes(8, "little") + bytes(3)
"""One plane: a zstd frame (RFC 8878) whose header states a size of 1 TiB."""


def test_planes_of_the_right_length_are_decoded() -> None:
    assert planes.decode(chunk_with_planes(4000, GOOD, GOOD), 4000) == bytes(4000)
    assert planes.decode(chunk_with_planes(4000, GOOD, bytes(2000), flags=0b01), 4000) == bytes(4000)


@pytest.mark.parametrize(
    "wrong",
    [
        chunk_with_planes(4000, GOOD, frame(bytes(2001))),
        chunk_with_planes(4000, GOOD, frame(bytes(1999))),
        chunk_with_planes(4000, GOOD, frame(bytes(2000), write_content_size=False)),
        chunk_with_planes(4000, GOOD, HUGE),
        chunk_with_planes(4000, GOOD, GOOD + b"x"),
        chunk_with_planes(4000, GOOD, GOOD + GOOD),
        chunk_with_planes(4000, GOOD, b"\x50\x2a\x4d\x18\x04\0\0\0abcd"),
        chunk_with_planes(4000, GOOD, b"no frame at all"),
        chunk_with_planes(4000, GOOD, b""),
        chunk_with_planes(4000, GOOD, GOOD, flags=0b111),
        chunk_with_planes(4000, GOOD, bytes(1999), flags=0b01),
    ],
)
def test_planes_of_wrong_length_are_refused_before_allocation(wrong: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Damaged):
            planes.decode(wrong, 4000)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_frame_with_a_large_window_is_refused() -> None:
    # A decoder would allocate 128 MiB for this window before it notices that the frame is truncated.
    window = (
        bytes.fromhex("28b52ffd 80 88") + (2000).to_bytes(4, "little") + (2000 << 3 | 3).to_bytes(3, "little")
    )
    assert planes.decode(chunk_with_planes(4000, GOOD, window + b"\0"), 4000) == bytes(4000)
    with pytest.raises(Damaged, match="too much memory"):
        planes.decode(chunk_with_planes(4000, GOOD, window), 4000)
