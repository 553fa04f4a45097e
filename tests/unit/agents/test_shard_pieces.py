"""Tests of the pieces of shards: both ends may use the generated class instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_agents.wire import hub_pb2, shard_pieces
from convoy_agents.wire.shard_pieces import ShardPiece

PIECE = ShardPiece(300, b"chunk" * 100, "job", "id of the shard", "token", b"manifest")
FIELDS = ("index", "data", "job_uid", "id", "slot_token", "manifest")


def fields(piece: ShardPiece | hub_pb2.Piece) -> list[object]:
    return [bytes(one) if isinstance(one := getattr(piece, name), memoryview) else one for name in FIELDS]


@given(
    st.builds(
        ShardPiece,
        st.integers(0, 2**32 - 1),
        st.binary(max_size=300),
        st.text(max_size=5),
        st.text(max_size=200),
        st.text(max_size=5),
        st.binary(max_size=200),
    )
)
def test_the_format_is_that_of_the_generated_class(piece: ShardPiece) -> None:
    generated = hub_pb2.Piece.FromString(shard_pieces.encode(piece))
    assert fields(generated) == fields(piece)
    assert fields(shard_pieces.decode(generated.SerializeToString())) == fields(piece)
    assert fields(shard_pieces.decode(shard_pieces.encode(generated))) == fields(piece)


def test_the_data_of_a_received_piece_is_not_copied() -> None:
    text = shard_pieces.encode(PIECE)
    data = shard_pieces.decode(text).data
    assert isinstance(data, memoryview) and data.obj is text


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_truncated_piece_is_refused(cut: int) -> None:
    with pytest.raises(ValueError, match="truncated"):
        shard_pieces.decode(shard_pieces.encode(PIECE)[:-cut])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"\x1d1234", "wire type 5"),
        (b"\xff" * 11, "more than 10 bytes"),
        (b"\x22" + b"\xff" * 9 + b"\x01", "truncated"),
        (b"\x0a\x02\xff\xff", "malformed"),
    ],
    ids=["fixed number", "long number", "huge length", "no text"],
)
def test_a_malformed_piece_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        shard_pieces.decode(text)


@given(st.binary(max_size=64))
def test_any_bytes_are_parsed_as_by_the_generated_class_or_refused(text: bytes) -> None:
    try:
        found = shard_pieces.decode(text)
    except ValueError:
        return
    assert fields(found) == fields(hub_pb2.Piece.FromString(text))
