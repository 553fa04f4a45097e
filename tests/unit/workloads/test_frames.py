from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_workloads.runtime.frames import MAX_FRAME, Decoder, FrameError, encode

MESSAGES = st.lists(
    st.builds(
        lambda kind, rest: {**rest, "type": kind},
        st.text(max_size=8),
        st.dictionaries(st.text(max_size=6), st.integers() | st.text(max_size=20) | st.none(), max_size=4),
    ),
    max_size=6,
)


@given(MESSAGES, st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=30))
def test_messages_are_decoded_whole_for_any_split_of_the_bytes(
    messages: list[dict[str, object]], cuts: list[int]
) -> None:
    stream = b"".join(encode(message) for message in messages)
    decoder, found, at, turn = Decoder(), [], 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        found += decoder.feed(stream[at : at + step])
        at, turn = at + step, turn + 1
    assert found == messages


def test_a_frame_is_a_big_endian_length_and_json() -> None:
    data = encode({"type": "shutdown", "exitCode": 3})
    assert struct.unpack(">I", data[:4]) == (len(data) - 4,)
    assert json.loads(data[4:]) == {"type": "shutdown", "exitCode": 3}


def test_an_invalid_length_is_rejected_before_the_body_arrives() -> None:
    with pytest.raises(FrameError, match="exceeds"):
        Decoder().feed(struct.pack(">I", MAX_FRAME + 1))


def test_a_message_too_long_is_not_sent() -> None:
    with pytest.raises(FrameError, match="'rank' message of"):
        encode({"type": "rank", "stderr": "x" * MAX_FRAME})


@pytest.mark.parametrize("body", [b"nonsense", b"[]", b"{}", b'{"type": 3}', b"\xff\xfe"])
def test_an_invalid_message_is_rejected(body: bytes) -> None:
    with pytest.raises(FrameError):
        Decoder().feed(struct.pack(">I", len(body)) + body)
