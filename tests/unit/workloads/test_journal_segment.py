"""Tests of the byte format of segments. Any steps can be written and read again. Changed bytes are refused,
or the digest detects them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.workloads.journals import raw

from convoy_workloads.runtime.journal import rows
from convoy_workloads.runtime.journal.kernel import Kernel
from convoy_workloads.runtime.journal.segment import (
    MAGIC,
    Head,
    NoRoom,
    Segment,
    SegmentError,
    Share,
)
from convoy_workloads.runtime.journal.segment_reader import read
from convoy_workloads.runtime.journal.segment_writer import SegmentWriter
from convoy_workloads.runtime.tiers import values

KERNEL = Kernel("torch.optim.adamw.AdamW", "", ("single",), "2.13.0", "cpu AVX2", 2)
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
scalars = st.dictionaries(
    st.sampled_from(["lr", "betas", "eps", "nesterov"]),
    st.one_of(st.floats(), st.booleans(), st.integers(), st.none(), st.tuples(st.floats(), st.floats())),
)


@st.composite
def shares(draw: Any, name: str) -> Share:
    shape = draw(shapes)
    offsets = tuple(draw(st.integers(0, size)) for size in shape)
    sizes = tuple(draw(st.integers(0, size - start)) for size, start in zip(shape, offsets, strict=True))
    return Share(name, offsets, sizes, shape)


def noise(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return arbitrary bits, including NaNs with payloads, infinities and denormals."""
    generator = torch.Generator().manual_seed(seed)
    count = torch.Size(shape).numel() * dtype.itemsize
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator).view(dtype).view(shape)


def box(tensor: torch.Tensor, share: Share) -> torch.Tensor:
    for dimension, (start, size) in enumerate(zip(share.offsets, share.sizes, strict=True)):
        tensor = tensor.narrow(dimension, start, size)
    return tensor


def gradients(segment: Segment, step: int) -> dict[str, bytes]:
    found = {}
    for piece in segment.steps[step].pieces:
        into = torch.full(piece.share.sizes, 3, dtype=getattr(torch, piece.dtype))
        segment.gradient(piece, into)
        found[piece.share.name] = raw(into)
    return found


@settings(max_examples=60)
@given(data=st.data())
def test_a_written_segment_is_read_back(data: st.DataObject) -> None:
    own = tuple(data.draw(shares(f"w{n}")) for n in range(data.draw(st.integers(0, 3))))
    head = Head(2, 5, "g7", data.draw(st.integers(0, 9)), data.draw(st.integers(0, 10**6)), "s", KERNEL, own)
    target = bytearray(b"\x5a" * 40_000)
    writer = SegmentWriter(memoryview(target), head)
    wanted = []
    for step in range(data.draw(st.integers(0, 3))):
        found = {}
        for number, share in enumerate(own):
            if data.draw(st.booleans()):
                gradient = noise(share.shape, data.draw(st.sampled_from(DTYPES)), 10 * step + number)
                writer.gradients([(number, gradient, box(gradient, share))])
                found[share.name] = raw(box(gradient, share))
        groups = data.draw(st.lists(scalars, max_size=2))
        writer.step(values.dumps(groups), "{}")
        wanted.append((groups, found))
    size = writer.seal(values.dumps([{"lr": 0.5}]), {"cursor": "[1]"}, {"step": 9})
    found_ = read(memoryview(target)[:size])
    assert found_.head == head and found_.after == [{"lr": 0.5}]
    assert found_.values == {"cursor": "[1]"} and found_.facts == {"step": 9}
    assert [(values.dumps(one.groups), gradients(found_, n)) for n, one in enumerate(found_.steps)] == [
        (values.dumps(groups), kept) for groups, kept in wanted
    ]
    assert all(piece.at % 64 == 0 for one in found_.steps for piece in one.pieces)


def embedding(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    gradient = torch.zeros(400, 3, dtype=dtype)
    gradient[[5, 17, 399]] = noise((3, 3), dtype, 1)
    gradient[200] = -0.0
    gradient[201, 2] = torch.nan
    return gradient


def small() -> tuple[bytearray, int]:
    """Return a segment and its length. It has two steps with every feature: rows, a dense gradient, a
    missing gradient, a tensor.
    """
    own = (Share("e", (0, 0), (400, 3), (400, 3)), Share("b", (1,), (4,), (5,)))
    target = bytearray(b"\x77" * 4096)
    writer = SegmentWriter(memoryview(target), Head(0, 1, "g1", 0, 0, "s", KERNEL, own))
    writer.gradients([(0, embedding(), embedding())])
    writer.gradients([(1, torch.ones(5), torch.ones(5)[1:])])
    writer.step(values.dumps([{"lr": 0.1}]), "{}")
    writer.gradients([(1, torch.ones(5), torch.ones(5)[1:])])
    writer.step(values.dumps([{"lr": 0.2}]), "{}")
    writer.tensor("mean", ((0,), (3,)), (3,), torch.ones(3))
    return target, writer.seal(values.dumps([{"lr": 0.3}]), {}, {})


def content(segment: Segment) -> Any:
    return (
        replace(segment, bytes=memoryview(b"")),
        [gradients(segment, number) for number in range(len(segment.steps))],
        [raw(segment.tensor(part)) for part in segment.parts],
    )


def test_every_changed_byte_is_rejected_or_changes_the_digest() -> None:
    """`read` refuses changes in the first 64 bytes and in the index, which could mislead `read`.

    It does not check tensors. The caller compares the digest of the whole segment, as agents do for each
    chunk.
    """
    target, size = small()
    whole = bytes(target[:size])
    index = int.from_bytes(whole[8:16], "little")
    pieces = [piece for one in read(memoryview(target)[:size]).steps for piece in one.pieces]
    listed = next(piece for piece in pieces if piece.count)
    digest = hashlib.sha256(whole).digest()
    passed = []
    for at in range(size):
        for flip in (1, 0x80, 0xFF):
            changed = bytearray(whole)
            changed[at] ^= flip
            assert hashlib.sha256(changed).digest() != digest
            try:
                found = read(memoryview(changed))
            except SegmentError:
                continue
            passed.append(at)
            assert 64 <= at < index, "only a tensor may be read with other bytes"
            content(found)
    assert set(range(64, index)) - set(passed) <= set(range(listed.at, listed.at + 4 * (listed.count or 0)))


@settings(max_examples=150)
@given(data=st.binary(max_size=200), cut=st.integers(0, 4096))
def test_invalid_bytes_are_rejected_as_a_segment(data: bytes, cut: int) -> None:
    target, size = small()
    whole = bytes(target[:size])
    for other in (data, MAGIC + data, whole[: cut % size], data + whole[len(data) + 1 :]):
        with pytest.raises(SegmentError):
            read(memoryview(other))


def forged(change: Any) -> bytes:
    """Return a segment whose index is changed by `change` and has a matching digest."""
    target, size = small()
    start = int.from_bytes(target[8:16], "little")
    body = json.loads(target[start:size])
    change(body)
    text = json.dumps(body).encode()
    head = MAGIC + start.to_bytes(8, "little") + len(text).to_bytes(8, "little")
    return head + hashlib.sha256(text).digest() + bytes(8) + bytes(target[64:start]) + text


def put(*way: Any) -> Any:
    """Return a function that sets a value in an index. `way`: the keys that lead to the value, then the
    value.
    """

    def change(body: Any) -> None:
        *path, last, value = way
        for key in path:
            body = body[key]
        body[last] = value

    return change


FORGED = {
    "no rank": lambda body: body.pop("rank"),
    "a rank below zero": put("rank", -1),
    "a rank that is a truth": put("rank", True),
    "a rank that is a fraction": put("rank", 1.0),
    "a number that is a text": put("number", "1"),
    "no kernel": put("kernel", {}),
    "a kernel of numbers": put("kernel", "torch", 2),
    "threads that are a text": put("kernel", "threads", "2"),
    "a box outside": put("shares", 1, 1, [2]),
    "a box of other dimensions": put("shares", 1, 1, [0, 0]),
    "a form of no share": put("forms", 0, 0, 9),
    "a type that is none": put("forms", 0, 1, "Tensor"),
    "strides with gaps": put("forms", 0, 2, [6, 1]),
    "strides that overlap": put("forms", 0, 2, [1, 1]),
    "a gradient beyond the end": put("steps", 0, 2, 1, 1, 64 * 1000),
    "a gradient in the header": put("steps", 0, 2, 1, 1, 0),
    "a gradient between": put("steps", 0, 2, 1, 1, 65),
    "a gradient that is longer": put("steps", 0, 2, 1, 2, 20),
    "a gradient of no form": put("steps", 0, 2, 1, 0, 7),
    "more rows than there are": put("steps", 0, 2, 0, 3, 401),
    "rows of what has none": put("steps", 0, 2, 1, [1, 64, 16, 1]),
    "two for one share": put("steps", 1, 2, [[1, 64, 16], [1, 64, 16]]),
    "scalars that are none": put("texts", 0, "3"),
    "a text that is no JSON": put("texts", 0, "{"),
    "a value of no kind": put("texts", 0, '{"$":"?"}'),
    "a text that is missing": put("steps", 0, 0, 9),
    "an end that is missing": put("after", 9),
    "a tensor beyond the end": put("parts", 0, 5, 64 * 1000),
    "a tensor of no type": put("parts", 0, 4, "float7"),
    "a tensor that is larger": put("parts", 0, 2, [4]),
    "values that are no texts": put("values", {"a": 1}),
    "facts that are none": put("facts", []),
}


def test_a_rewritten_index_with_equal_content_is_read() -> None:
    target, size = small()
    same = read(memoryview(bytearray(forged(lambda body: None))))
    assert content(same) == content(read(memoryview(target)[:size]))


@pytest.mark.parametrize("name", FORGED)
def test_an_index_with_impossible_values_is_rejected(name: str) -> None:
    with pytest.raises(SegmentError):
        read(memoryview(bytearray(forged(FORGED[name]))))


@pytest.mark.parametrize("indexes", [[5, 5], [17, 5], [-1, 17], [5, 400]])
def test_invalid_row_indexes_are_rejected(indexes: list[int]) -> None:
    target, size = small()
    piece = read(memoryview(target)[:size]).steps[0].pieces[0]
    assert piece.count == 5
    target[piece.at : piece.at + 20] = raw(torch.tensor([*indexes, 401, 402, 403][:5], dtype=torch.int32))
    with pytest.raises(SegmentError):
        read(memoryview(target)[:size])


def test_equal_steps_make_equal_bytes_in_a_reused_buffer() -> None:
    target, size = small()
    own = read(memoryview(target)[:size])
    again = bytearray(b"\x11" * 4096)
    writer = SegmentWriter(memoryview(again), own.head)
    for number, step in enumerate(own.steps):
        for piece in step.pieces:
            share = own.head.shares.index(piece.share)
            whole = embedding() if share == 0 else torch.ones(5)
            writer.gradients([(share, whole, box(whole, piece.share))])
        writer.step(values.dumps([{"lr": 0.1 * (number + 1)}]), "{}")
    writer.tensor("mean", ((0,), (3,)), (3,), torch.ones(3))
    assert writer.seal(values.dumps([{"lr": 0.3}]), {}, {}) == size
    assert again[:size] == target[:size]


def test_an_unsealed_segment_is_rejected() -> None:
    target, size = small()
    writer = SegmentWriter(memoryview(target), read(memoryview(target)[:size]).head)
    with pytest.raises(SegmentError):
        read(memoryview(target))
    writer.gradients([(1, torch.ones(5), torch.ones(5)[1:])])
    writer.step("[]", "{}")
    with pytest.raises(SegmentError):
        read(memoryview(target))


def test_gradients_of_an_unfinished_step_are_not_in_the_segment() -> None:
    target, size = small()
    head = read(memoryview(target)[:size]).head
    writer = SegmentWriter(memoryview(target), head)
    left = writer.left
    writer.gradients([(1, torch.ones(5), torch.ones(5)[1:])])
    writer.drop()
    assert 0 <= left - writer.left < 100
    writer.gradients([(1, torch.ones(5), torch.ones(5)[1:])])
    size = writer.seal("[]", {}, {})
    assert read(memoryview(target)[:size]).steps == ()


def test_a_gradient_that_does_not_fit_is_rejected() -> None:
    target, size = small()
    head = read(memoryview(target)[:size]).head
    with pytest.raises(NoRoom):
        SegmentWriter(memoryview(bytes(4096)), head)
    with pytest.raises(NoRoom):
        SegmentWriter(memoryview(bytearray(63)), head)
    writer = SegmentWriter(memoryview(bytearray(4096)), head)
    with pytest.raises(NoRoom, match="are left"):
        writer.gradients([(1, torch.ones(5000), torch.ones(5000))])
    with pytest.raises(NoRoom, match="an index of"):
        writer.seal("[]", {"a": "x" * 4096}, {})


def test_rows_are_restored_bit_for_bit() -> None:
    target, size = small()
    found = gradients(read(memoryview(target)[:size]), 0)
    assert found == {"e": raw(embedding()), "b": raw(torch.ones(4))}


@pytest.mark.parametrize("left", range(0, 8000, 500))
def test_every_step_that_fits_can_be_sealed(left: int) -> None:
    """Small gradients are written until the segment is full. Their index entries are larger than the
    gradients.
    """
    filled, size = small()
    shares_ = tuple(Share(f"w{number}", (), (), ()) for number in range(100))
    target = bytearray(14_000 + left)
    head = replace(read(memoryview(filled)[:size]).head, shares=shares_)
    writer = SegmentWriter(memoryview(target), head)
    stored = 0
    try:
        while True:
            for number in range(100):
                writer.gradients([(number, torch.ones(()), torch.ones(()))])
            writer.step(values.dumps([{"lr": 1 / 3}]), "{}")
            stored += 1
    except NoRoom:
        size = writer.seal(values.dumps([{"lr": 1 / 3}]), {}, {})
    assert len(read(memoryview(target)[:size]).steps) == stored


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_with_any_bit_set_are_stored(dtype: torch.dtype) -> None:
    found = rows.nonzero_rows(embedding(dtype))
    assert found is not None and found.tolist() == [5, 17, 200, 201, 399]


def test_rows_are_stored_separately_only_if_that_is_smaller() -> None:
    assert rows.nonzero_rows(torch.zeros(400, 3)) is not None
    assert rows.nonzero_rows(torch.ones(400, 3)) is None
    assert rows.nonzero_rows(torch.zeros(255, 3)) is None
    assert rows.nonzero_rows(torch.zeros(400)) is None
    assert rows.nonzero_rows(torch.zeros(3, 400).t()) is None
    assert rows.nonzero_rows(torch.zeros(400, 0)) is None
    # All rows are counted, because the few rows that are checked first happen to be zero. A row takes 12
    # bytes, or 16 with its index. So it is smaller to store all rows.
    probed = torch.ones(6400, 3)
    probed[::100] = 0
    assert rows.nonzero_rows(probed) is None
    thin = torch.zeros(6400, 3)
    thin[1::2] = 1
    assert rows.nonzero_rows(thin) is not None
    thin[2::4] = 1
    assert rows.nonzero_rows(thin) is None
