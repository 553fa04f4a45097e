"""Tests of requests as popular clients send them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workloads.serving.harness import serving

from convoy_workloads.engines.lm.tokenizer import ByteTokenizer
from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.openai.requests import (
    NEUTRAL,
    ChatRequest,
    CompletionRequest,
    parse_chat,
    parse_completion,
)

USER = {"role": "user", "content": "hi"}
ANSWER: dict[str, Any] = {
    "role": "assistant",
    "content": "hello",
    "refusal": None,
    "annotations": [],
    "audio": None,
    "function_call": None,
    "tool_calls": None,
}
"""A message of a response, as the openai client for Python dumps it."""
PART = {"type": "text", "text": "a", "cache_control": None}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"functions": None, "function_call": None, "stop": None, "top_k": None}, id="nulls"),
        pytest.param({"response_format": {"type": "text"}, "modalities": ["text"]}, id="text"),
        pytest.param({"repetition_penalty": 1.0, "min_p": 0.0, "min_tokens": 0, "top_k": -1}, id="vllm"),
        pytest.param({"ignore_eos": False, "use_beam_search": False}, id="benchmark"),
        pytest.param({"prompt_cache_key": "a", "safety_identifier": "b", "user": "c"}, id="no effect"),
        pytest.param({"stream_options": {"include_usage": True}}, id="options without stream"),
    ],
)
def test_fields_that_change_nothing_are_accepted(more: dict[str, Any]) -> None:
    body = {"model": "echo", "messages": [USER], **more}
    assert parse_chat(json.dumps(body).encode()).candidates == 0


@pytest.mark.parametrize(
    ("message", "text"),
    [
        pytest.param(ANSWER, "assistant: hello", id="response"),
        pytest.param({**ANSWER, "content": None}, "assistant: ", id="empty response"),
        pytest.param({**USER, "content": [PART]}, "user: a", id="null in a part"),
    ],
)
def test_messages_may_have_fields_of_a_response(message: dict[str, Any], text: str) -> None:
    found = parse_chat(json.dumps({"messages": [USER, message, USER]}).encode())
    assert bytes(found.prompt(ByteTokenizer())).decode() == f"user: hi\n{text}\nuser: hi\nassistant: "


@pytest.mark.parametrize("field", NEUTRAL)
def test_a_field_accepts_only_its_neutral_value(field: str) -> None:
    chat = field in ChatRequest.model_fields
    assert chat or field in CompletionRequest.model_fields
    parse, body = (parse_chat, {"messages": [USER]}) if chat else (parse_completion, {"prompt": "a"})
    neutral = json.loads(NEUTRAL[field])
    for value in (neutral, None):
        parse(json.dumps({**body, field: value}).encode())
    with pytest.raises(RequestError) as error:
        parse(json.dumps({**body, field: [neutral, 7]}).encode())
    assert (error.value.status, error.value.field, error.value.code) == (400, field, "unsupported_value")
    assert error.value.message.endswith(f"leave it out, or set it to {NEUTRAL[field]}")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"prompt": "a", "bogus": null, "max_token": 3}', "max_token: this server does not know the field"),
        (b'{"prompt": 3, "bogus": null}', "prompt: Input should be"),
        (b'{"prompt": "a", "bogus": null, "bogus": null, "temperature": NaN}', "temperature: Input should"),
        (b'{"bogus": null}', "prompt: Field required"),
    ],
)
def test_nulls_hide_no_other_error(body: bytes, message: str) -> None:
    with pytest.raises(RequestError) as error:
        parse_completion(body)
    assert error.value.message.startswith(message)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("ab", [(97, 98)]),
        (["a", "b"], [(97,), (98,)]),
        ([97, 98], [(97, 98)]),
        ([[97, 98], [99]], [(97, 98), (99,)]),
    ],
)
def test_a_prompt_has_four_forms(prompt: Any, expected: list[tuple[int, ...]]) -> None:
    assert parse_completion(json.dumps({"prompt": prompt}).encode()).prompts(ByteTokenizer()) == expected


async def test_a_stream_is_not_collected_by_proxies(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        body = {"prompt": "ab", "max_tokens": 2, "stream": True}
        async with rank.session.post(f"{rank.base}/v1/completions", json=body) as response:
            assert response.headers["X-Accel-Buffering"] == "no"
            assert response.headers["Cache-Control"] == "no-store"


async def test_a_compressed_body_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        status, body, _ = await rank.post("/v1/completions", b"\x1f\x8b", {"Content-Encoding": "gzip"})
        assert (status, body["error"]["param"]) == (415, "Content-Encoding")


async def test_a_body_must_arrive_before_the_deadline(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        for path in ("/v1/completions", "/v2/models/echo/infer"):
            reader, writer = await asyncio.open_connection("127.0.0.1", rank.port)
            headers = "Host: a\r\nContent-Length: 9\r\nX-Request-Timeout: 0.01"
            writer.write(f"POST {path} HTTP/1.1\r\n{headers}\r\n\r\n{{".encode())
            status = await asyncio.wait_for(reader.readline(), 30)
            assert status.split()[1] == b"408"
            writer.close()
