from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_agents.pods.frames import HEADER, MAX_FRAME, Decoder, FrameError, encode

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20)
messages = st.dictionaries(st.text(max_size=8), scalars, max_size=5).map(lambda body: {**body, "type": "t"})


@given(st.lists(messages, max_size=5), st.data())
def test_frames_survive_any_cut_of_the_stream(sent: list[dict[str, Any]], data: st.DataObject) -> None:
    stream = b"".join(encode(message) for message in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder = Decoder()
    got: list[dict[str, Any]] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += decoder.feed(stream[start:end])
    assert got == sent
    assert decoder.held == 0


@given(st.binary(max_size=300))
def test_any_bytes_are_frames_or_a_frame_error(data: bytes) -> None:
    try:
        frames = Decoder().feed(data)
    except FrameError:
        return
    assert all(isinstance(frame["type"], str) for frame in frames)


@given(st.binary(max_size=60), st.integers(0, 60))
def test_a_body_of_any_bytes_is_an_object_or_a_frame_error(body: bytes, _: int) -> None:
    try:
        [frame] = Decoder().feed(len(body).to_bytes(HEADER, "big") + body)
    except FrameError:
        return
    assert json.loads(body) == frame


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"type": 1}',
        b'{"type": "t", "x": NaN}',
        b'{"type": "t", "x": Infinity}',
        b"\xff",
        b'{"type": "t", "x": ' + b"9" * 5000 + b"}",
        b'{"type": "t", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["empty", "null", "list", "no type", "typeless", "NaN", "infinity", "no text", "huge number", "deep"],
)
def test_a_malformed_body_is_a_frame_error(body: bytes) -> None:
    with pytest.raises(FrameError):
        Decoder().feed(len(body).to_bytes(HEADER, "big") + body)


def test_a_frame_of_maximum_length_passes_and_a_longer_one_fails() -> None:
    room = MAX_FRAME - len(json.dumps({"type": "t", "x": ""}, separators=(",", ":")))
    frame = encode({"type": "t", "x": "a" * room})
    assert Decoder().feed(frame)[0]["x"] == "a" * room
    with pytest.raises(FrameError):
        encode({"type": "t", "x": "a" * (room + 1)})
    with pytest.raises(FrameError):
        Decoder().feed((MAX_FRAME + 1).to_bytes(HEADER, "big"))


def test_nan_and_infinity_are_not_encoded() -> None:
    with pytest.raises(FrameError):
        encode({"type": "t", "x": float("nan")})
