"""Tests of the streams of events that `convoy load` reads, in the forms of several servers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from convoy.load import event_stream
from convoy.load.event_stream import DONE, Event, MalformedStream, data_of, parse


async def read(content: bytes, part: int) -> list[bytes]:
    """Return the data of the events in a content that arrives in parts of this size."""

    async def chunks() -> AsyncIterator[bytes]:
        for begin in range(0, len(content), part):
            yield content[begin : begin + part]

    return [one async for one in data_of(chunks())]


@pytest.mark.parametrize("part", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("content", "data"),
    [
        (b"data: a\n\ndata: [DONE]\n\n", [b"a", DONE]),
        (b"data: a\r\n\r\ndata: [DONE]\r\n\r\n", [b"a", DONE]),
        (b"data:a\n\ndata:[DONE]\n\n", [b"a", DONE]),
        (b": keep-alive\n\n:\n\nretry: 3000\n\ndata: a\n\n", [b"a"]),
        (b"event: message\nid: 1\ndata: a\n\n", [b"a"]),
        (b"data: {\ndata: }\n\n\n\ndata:  b\n\n", [b"{\n}", b" b"]),
        (b"data: a\n\ndata: b", [b"a"]),
        (b"", []),
    ],
    ids=["lf", "crlf", "no blank", "comments", "fields", "lines", "cut", "empty"],
)
async def test_the_data_of_events_is_found(content: bytes, data: list[bytes], part: int) -> None:
    assert await read(content, part) == data


async def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "EVENT_BYTES", 100)
    for content in (b"data: " + b"a" * 200, b"data: aaaa\n" * 30):
        with pytest.raises(MalformedStream, match="more than 100 bytes"):
            await read(content, 10)


@pytest.mark.parametrize(
    ("content", "event"),
    [
        ({"choices": [{"text": "a"}]}, Event(text=True)),
        ({"choices": [{"delta": {"content": "a"}}], "error": None}, Event(text=True)),
        ({"choices": [{"delta": {"reasoning_content": "a", "content": None}}]}, Event(text=True)),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, Event()),
        ({"choices": [{"delta": None, "text": None}, None]}, Event()),
        ({"choices": [], "usage": {}}, Event()),
        ({"choices": None}, Event()),
        ({"usage": {}}, Event()),
        ({"error": {"code": 500, "type": "x", "message": "m"}}, Event(error="500", message="m")),
        ({"error": "overloaded", "error_type": "x"}, Event(error="error", message="overloaded")),
        ({"object": "error", "type": "Bad", "code": None, "message": "m"}, Event(error="Bad", message="m")),
    ],
)
def test_events_of_several_servers_are_understood(content: object, event: Event) -> None:
    assert parse(json.dumps(content).encode()) == event


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff"])
def test_other_data_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedStream):
        parse(data)
