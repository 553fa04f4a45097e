"""Tests of packed weights and their files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convoy_workloads.kernels import packed_file
from convoy_workloads.kernels.errors import InvalidInput
from convoy_workloads.kernels.packed_file import (
    HEADER_BYTES,
    MAGIC,
    PackedFileError,
    open_packed,
    write_packed,
)
from convoy_workloads.kernels.packing import BITS, PackedWeights, dequantise, pack, packed_size, unpack

schemes = pytest.mark.parametrize("scheme", BITS)


def parts(
    scheme: str, outputs: int, inputs: int, group: int = 32, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    shape = (outputs, -(-inputs // group))
    return (
        random.integers(0, 1 << BITS[scheme], (outputs, inputs), np.uint8),
        random.normal(size=shape).astype(np.float16),
        random.integers(0, 256, shape, np.uint8),
    )


@schemes
def test_packing_loses_nothing(scheme: str) -> None:
    random = np.random.default_rng(1)
    for seed in range(60):
        group = int(random.choice((32, 64, 96, 128, 160)))
        own = parts(scheme, *map(int, random.integers(1, 300, 2)), group, seed)
        found = unpack(pack(scheme, *own, group))
        for first, second in zip(own, found, strict=True):
            assert first.dtype == second.dtype
            assert np.array_equal(first, second)


@schemes
def test_many_outputs_are_packed_in_parts(scheme: str) -> None:
    codes, scales, zeros = parts(scheme, 1100, 40)
    packed = pack(scheme, codes, scales, zeros, 32)
    assert np.array_equal(unpack(packed)[0], codes)
    for first, last in ((0, 1), (500, 530), (1090, 1100), (7, 1099)):
        found = unpack(packed, first, last)
        assert all(
            np.array_equal(one, all_[first:last])
            for one, all_ in zip(found, (codes, scales, zeros), strict=True)
        )


def test_codes_stand_where_the_layout_says() -> None:
    output, place = 21, 32 + 13
    at = packed_size("w4a16", 16, 64, 32) + packed_size("w4a16", 16, 32, 32)
    codes, scales, zeros = (
        np.zeros((32, 64), np.uint8),
        np.ones((32, 2), np.float16),
        np.zeros((32, 2), np.uint8),
    )
    codes[output, place], scales[output, 1], zeros[output, 1] = 9, 3.0, 7
    tile = pack("w4a16", codes, scales, zeros, 32).tiles[at:]
    assert tile[:32].view(np.float16)[5] == 3.0
    assert tile[32 + 5] == 7
    # Input 13 is in block 1, pair 2, and is the second of its pair.
    lanes = tile[64 + 64 :][:64].view("<u2")
    assert lanes[2 * 5 + 1] == 9 << (4 * 2)
    assert np.count_nonzero(lanes) == 1

    at = packed_size("w8a16", 16, 64, 32) + packed_size("w8a16", 16, 32, 32)
    codes = np.full((32, 64), 128, np.uint8)
    codes[output, place] = 100
    tile = pack("w8a16", codes, scales, zeros, 32).tiles[at:]
    # Input 13 is in block 3, pair 0, and is the second of its pair.
    lane = 2 * 5 + 1
    block = tile[64 + 3 * 64 :][:64]
    assert block[16 * (lane // 8) + lane % 8] == 255 - 100
    assert np.count_nonzero(block) == 1


@schemes
def test_dequantised_weights(scheme: str) -> None:
    codes, scales, zeros = parts(scheme, 19, 70)
    expected = np.empty((19, 70), np.float32)
    for output in range(19):
        for place in range(70):
            scale, zero = np.float32(scales[output, place // 32]), int(zeros[output, place // 32])
            expected[output, place] = scale * np.float32(int(codes[output, place]) - zero)
    assert np.array_equal(dequantise(pack(scheme, codes, scales, zeros, 32)), expected)


def change(place: int, value: Any) -> Callable[[list[Any]], None]:
    def changed(arguments: list[Any]) -> None:
        arguments[place] = value(arguments[place]) if callable(value) else value

    return changed


def with_element(value: Any) -> Callable[[np.ndarray], np.ndarray]:
    def changed(array: np.ndarray) -> np.ndarray:
        array[3, 1] = value
        return array

    return changed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (change(0, "w3a16"), "scheme: 'w3a16' is not one of w4a16, w8a16"),
        (change(1, with_element(16)), r"codes\[3, 1\]: 16 needs more than 4 bits"),
        (change(1, lambda codes: codes.astype(np.int8)), r"codes: dtype \|i1 instead of \|u1"),
        (change(1, lambda codes: codes[0]), r"codes: shape 64 instead of \?x\?"),
        (change(1, lambda codes: codes[:, ::2]), "codes: not C-contiguous"),
        (change(1, lambda codes: codes[:, :0].copy()), "inputs: 0 is not between"),
        (change(2, with_element(np.nan)), r"scales\[3, 1\]: nan is not finite"),
        (change(2, with_element(-np.inf)), r"scales\[3, 1\]: -inf is not finite"),
        (change(2, lambda scales: scales.astype(">f2")), "scales: dtype >f2 instead of <f2"),
        (change(2, lambda scales: scales[:19].copy()), "scales: shape 19x2 instead of 20x2"),
        (change(3, lambda zeros: zeros[:, :1].copy()), "zeros: shape 20x1 instead of 20x2"),
        (change(4, 64), "scales: shape 20x2 instead of 20x1"),
        (change(4, 48), "group_size: 48 is not a multiple of 32 up to"),
        (change(4, 0), "group_size: 0 is not a multiple of 32"),
        (change(4, 1 << 20), "group_size: 1048576 is not"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changed: Callable[[list[Any]], None], message: str) -> None:
    arguments: list[Any] = ["w4a16", *parts("w4a16", 20, 64), 32]
    changed(arguments)
    with pytest.raises(InvalidInput, match=message):
        pack(*arguments)


def test_tiles_of_another_size_or_alignment_are_refused() -> None:
    packed = pack("w4a16", *parts("w4a16", 20, 64), 32)
    memory = np.zeros(packed.tiles.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64
    for tiles, message in (
        (packed.tiles[:-1], "tiles: shape"),
        (memory[start + 1 :][: packed.tiles.nbytes], "no multiple of 64"),
    ):
        with pytest.raises(InvalidInput, match=message):
            PackedWeights("w4a16", 20, 64, 32, tiles)


@pytest.fixture
def packed() -> PackedWeights:
    return pack("w8a16", *parts("w8a16", 40, 100), 32)


@schemes
def test_a_file_is_mapped_read_only(scheme: str, tmp_path: Path) -> None:
    own = pack(scheme, *parts(scheme, 40, 100), 32)
    path = tmp_path / "weights"
    write_packed(path, own)
    write_packed(path, own)
    found = open_packed(path)
    assert (found.scheme, found.outputs, found.inputs, found.group_size) == (scheme, 40, 100, 32)
    assert np.array_equal(found.tiles, own.tiles)
    assert not found.tiles.flags.writeable
    assert [one.name for one in tmp_path.iterdir()] == ["weights"]


def test_a_failed_write_leaves_the_old_file(
    packed: PackedWeights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(packed_file.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_packed(path, packed)
    assert [one.read_text() for one in tmp_path.iterdir()] == ["old"]


def rewrite(path: Path, **fields: Any) -> None:
    """Replace fields of the header, as a program that packs in another way would write them."""
    data = path.read_bytes()
    text = data[len(MAGIC) + 65 : HEADER_BYTES].partition(b"\n")[0]
    packed_file.write_file(path, packed_file.header(json.loads(text) | fields), data[HEADER_BYTES:])


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def truncate(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: path.unlink(), "cannot read .*: No such file"),
        (lambda path: path.write_bytes(b""), "it is no file of packed weights"),
        (lambda path: truncate(path, 100), "it ends after 100 of the header's 4096 bytes"),
        (lambda path: truncate(path, HEADER_BYTES), "it has 0 bytes of tiles; its sizes need"),
        (lambda path: truncate(path, -1), "bytes of tiles; its sizes need"),
        (lambda path: damage(path, HEADER_BYTES + 9), "its tiles do not have the digest"),
        (lambda path: damage(path, 100), "its header is damaged"),
        (lambda path: rewrite(path, layout="n8k4"), "it has layout 'n8k4'; these kernels read 'n16k2'"),
        (lambda path: rewrite(path, byte_order="big"), "its byte order is big; this machine's is little"),
        (lambda path: rewrite(path, scheme="w2a16"), "its header's scheme: 'w2a16' is not one of"),
        (lambda path: rewrite(path, group_size=20), "its header's group_size: 20 is not"),
        (lambda path: rewrite(path, outputs="40"), "its header has no valid field 'outputs'"),
        (lambda path: rewrite(path, outputs=50), "bytes of tiles; its sizes need"),
        (lambda path: rewrite(path, digest="00"), "its tiles do not have the digest"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    packed: PackedWeights, tmp_path: Path, harm: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "weights"
    write_packed(path, packed)
    harm(path)
    with pytest.raises(PackedFileError, match=message):
        open_packed(path)


def test_without_verification_only_the_header_is_read(packed: PackedWeights, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    write_packed(path, packed)
    damage(path, HEADER_BYTES + 9)
    assert not np.array_equal(open_packed(path, verify=False).tiles, packed.tiles)
