"""Tests of completions and chats, whole and streamed."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workloads.serving.harness import Scripted, parse_events, serving

from convoy_workloads.engines.lm.tokenizer import ByteTokenizer
from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.front import Limits
from convoy_workloads.serving.openai.requests import (
    ChatRequest,
    CompletionRequest,
    StreamOptions,
    parse_chat,
    parse_completion,
)


async def test_a_completion_has_the_text_and_the_numbers_of_tokens(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        status, body, headers = await rank.complete("abc", 5, model="echo")
        assert status == 200
        assert body["id"] == f"cmpl-{headers['x-request-id']}" and body["object"] == "text_completion"
        assert body["model"] == "echo"
        assert body["choices"] == [{"index": 0, "text": "abcab", "logprobs": None, "finish_reason": "length"}]
        usage = body["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, 5, 8)
        assert usage["prompt_tokens_details"] == {"cached_tokens": 3}


async def test_a_streamed_completion_has_the_same_text(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        options = {"stream_options": {"include_usage": True}}
        *events, done = await rank.events({"prompt": "abc", "max_tokens": 5, **options})
        assert done == "[DONE]"
        *chunks, usage = events
        assert [one["choices"][0]["text"] for one in chunks] == ["a", "b", "c", "a", "b", ""]
        reasons = [one["choices"][0]["finish_reason"] for one in chunks]
        assert reasons == [None, None, None, None, None, "length"]
        assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 5
        assert len({one["id"] for one in events}) == 1


async def test_a_chat_has_a_role_and_a_message(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        request = {
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "u"}, {"type": "text", "text": "v"}]},
            ],
            "max_completion_tokens": 9,
        }
        status, body, _ = await rank.post("/v1/chat/completions", request)
        assert status == 200 and body["object"] == "chat.completion"
        assert body["choices"][0]["message"] == {"role": "assistant", "content": "system: s"}
        assert bytes(rank.engine.admitted[0].tokens) == b"system: s\nuser: uv\nassistant: "
        *events, done = await rank.events(request, "/v1/chat/completions")
        assert done == "[DONE]"
        deltas = [one["choices"][0]["delta"] for one in events]
        assert deltas[0] == {"role": "assistant", "content": ""} and deltas[-1] == {}
        assert "".join(one.get("content", "") for one in deltas) == "system: s"


async def test_choices_have_their_own_seeds_and_indexes(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        status, body, _ = await rank.post(
            "/v1/completions", {"prompt": ["ab", "x"], "n": 2, "max_tokens": 3, "seed": 5, "temperature": 0}
        )
        assert status == 200
        assert [(one["index"], one["text"]) for one in body["choices"]] == [
            (0, "aba"),
            (1, "aba"),
            (2, "xxx"),
            (3, "xxx"),
        ]
        samplings = [one.sampling for one in rank.engine.admitted]
        assert [one.seed for one in samplings] == [5, 6, 5, 6]
        assert all(one.temperature == 0 and one.max_tokens == 3 for one in samplings)
        assert body["usage"]["prompt_tokens"] == 3 and body["usage"]["completion_tokens"] == 12
        events = await rank.events({"prompt": ["ab", "x"], "max_tokens": 2})
        texts = {0: "", 1: ""}
        for one in events[:-1]:
            choice = one["choices"][0]
            texts[choice["index"]] += choice["text"]
        assert texts == {0: "ab", 1: "xx"}


async def test_a_request_without_a_seed_gets_a_random_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        for _ in range(3):
            await rank.complete("a", 1)
        assert len({one.sampling.seed for one in rank.engine.admitted}) == 3


@pytest.mark.parametrize(
    ("stop", "text", "reason"),
    [
        ("ca", "ab", "stop"),
        (["zz", "bc"], "a", "stop"),
        (["bcab", "abc"], "", "stop"),
        ("cb", "abcabcabca", "length"),
        ("cabx", "abcabcabca", "length"),
    ],
)
async def test_the_text_ends_before_the_first_stop_string(
    stop: Any, text: str, reason: str, tmp_path: Path
) -> None:
    async with serving(tmp_path) as rank:
        _, body, _ = await rank.complete("abc", 10, stop=stop)
        assert (body["choices"][0]["text"], body["choices"][0]["finish_reason"]) == (text, reason)
        events = await rank.events({"prompt": "abc", "max_tokens": 10, "stop": stop})
        assert "".join(one["choices"][0]["text"] for one in events[:-1]) == text
        assert not rank.engine.running


@pytest.mark.parametrize("end", "bc")
async def test_each_of_the_models_end_tokens_ends_the_text(end: str, tmp_path: Path) -> None:
    tokenizer = ByteTokenizer()
    tokenizer.ends = frozenset((ord(end), ord("z")))
    async with serving(tmp_path, Scripted(tokenizer=tokenizer)) as rank:
        _, body, _ = await rank.complete("abc", 10)
        choice = body["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("abc".partition(end)[0], "stop")
        assert not rank.engine.running


async def test_a_character_of_several_tokens_is_one_event(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        events = await rank.events({"prompt": "aé€", "max_tokens": 6})
        assert [one["choices"][0]["text"] for one in events[:-1]] == ["a", "é", "€", ""]
        _, body, _ = await rank.complete("aé€", 5)
        assert body["choices"][0]["text"] == "aé\ufffd"


async def test_probabilities_are_reported_in_both_forms(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        _, body, _ = await rank.complete("aé", 2, logprobs=1)
        assert body["choices"][0]["logprobs"] == {
            "tokens": ["a", "bytes:\\xc3"],
            "token_logprobs": [-0.5, -0.5],
            "top_logprobs": [{"a": -0.5}, {"bytes:\\xc3": -0.5}],
        }
        chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "logprobs": True}
        _, body, _ = await rank.post("/v1/chat/completions", {**chat, "top_logprobs": 1})
        entry = {"token": "u", "logprob": -0.5, "bytes": [117]}
        assert body["choices"][0]["logprobs"] == {"content": [{**entry, "top_logprobs": [entry]}]}
        assert [one.sampling.logprobs for one in rank.engine.admitted] == [1, 1]
        events = await rank.events({"prompt": "ab", "max_tokens": 2, "logprobs": 0})
        tokens = [one["choices"][0]["logprobs"] for one in events[:-1]]
        assert [one and one["tokens"] for one in tokens] == [["a"], ["b"], None]


GOOD = {"prompt": "abc", "max_tokens": 4}


@pytest.mark.parametrize(
    ("change", "status", "field", "words"),
    [
        ({"prompt": None}, 400, "prompt", "prompt: "),
        ({"prompt": ""}, 400, "prompt", "must not be empty"),
        ({"prompt": []}, 400, "prompt", "prompt"),
        ({"prompt": [300]}, 400, "prompt", "tokens from 0 to 255"),
        ({"prompt": [-1]}, 400, "prompt.0", "greater than or equal to 0"),
        ({"prompt": "x" * 64}, 400, "prompt", "has 64 tokens; the model's context has 64"),
        ({"max_tokens": 62}, 400, "max_tokens", "at most 61"),
        ({"max_tokens": 0}, 400, "max_tokens", "greater than or equal to 1"),
        ({"max_tokens": "4"}, 400, "max_tokens", "valid integer"),
        ({"n": 17}, 400, "n", "less than or equal to 16"),
        ({"n": 9, "prompt": ["a", "b"]}, 400, "n", "exceed 16 choices"),
        ({"stop": ["a", "b", "c", "d", "e"]}, 400, "stop", "at most 4"),
        ({"stop": ""}, 400, "stop", "at least 1 character"),
        ({"temperature": 3}, 400, "temperature", "less than or equal to 2"),
        ({"temperature": float("nan")}, 400, "temperature", "temperature: "),
        ({"top_p": 0}, 400, "top_p", "greater than 0"),
        ({"logprobs": 6}, 400, "logprobs", "less than or equal to 5"),
        ({"presence_penalty": 0.5}, 400, "presence_penalty", "does not support the field: leave it out"),
        ({"echo": True}, 400, "echo", "set it to false"),
        ({"best_of": 2}, 400, "best_of", "1"),
        ({"max_token": 4}, 400, "max_token", "does not know the field"),
        ({"model": "gpt-4"}, 404, "model", "there is no model 'gpt-4'; GET /v1/models lists 'echo'"),
    ],
)
async def test_a_bad_field_is_named(
    change: dict[str, Any], status: int, field: str | None, words: str, tmp_path: Path
) -> None:
    async with serving(tmp_path) as rank:
        code, body, headers = await rank.post("/v1/completions", {**GOOD, **change}, {"X-Request-Id": "mine"})
        error = body["error"]
        assert (code, error["param"]) == (status, field)
        assert words in error["message"]
        assert error["type"] == ("invalid_request_error" if status == 400 else "not_found_error")
        assert headers["x-request-id"] == "mine"
        assert not rank.engine.admitted
        assert (await rank.complete("abc"))[0] == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "body: "),
        (b'"text"', "body: "),
        (b"\xff", "not valid JSON"),
        (b'{"messages": []}', "messages: "),
        (b'{"messages": [{"role": "robot", "content": "x"}]}', "messages.0.role: "),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "messages.0.content"),
        (b'{"messages": [{"role": "user", "content": "x"}], "tools": [{}]}', "tools: "),
        (b'{"messages": [{"role": "user", "content": "' + b"x" * 80 + b'"}]}', "messages: has 98 tokens"),
    ],
)
async def test_a_bad_chat_is_refused(body: bytes, words: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        code, found, _ = await rank.post("/v1/chat/completions", body)
        assert code == 400 and words in found["error"]["message"]


async def test_a_body_is_limited_with_and_without_a_length(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=Limits(body_bytes=100)) as rank:
        code, body, _ = await rank.complete("x" * 100)
        assert (code, body["error"]["code"]) == (413, "body_too_large")

        async def parts() -> Any:
            for _ in range(20):
                yield b" " * 10

        async with rank.session.post(f"{rank.base}/v1/completions", data=parts()) as response:
            assert response.status == 413
        assert (await rank.complete("abc"))[0] == 200


async def test_other_methods_and_paths_have_errors_of_the_same_form(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        for path, status in (("/v1/completions", 405), ("/v1/nothing", 404), ("/", 404)):
            code, text = await rank.get(path)
            assert code == status and json.loads(text)["error"]["message"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/completions", "did you mean /v1/completions?"),
        ("/v1/v1/chat/completions", "did you mean /v1/chat/completions?"),
        ("/v1/completions/", "did you mean /v1/completions?"),
        ("/openai/v1/models", "did you mean /v1/models?"),
        ("/v1/models/echo:predict", "use POST /v2/models/NAME/infer"),
        ("/v1/nothing", "the API is below /v1"),
    ],
)
async def test_a_wrong_path_names_the_right_one(path: str, words: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        code, body, _ = await rank.post(path, GOOD)
        assert code in (404, 405) and words in body["error"]["message"]


def test_a_field_that_is_null_counts_as_absent() -> None:
    """Each field, also in another object. Some clients send all fields that they know."""
    plain = parse_completion(json.dumps(GOOD).encode())
    for field in {*CompletionRequest.model_fields, "unknown"} - {*GOOD}:
        assert parse_completion(json.dumps({**GOOD, field: None}).encode()) == plain, field
    message = {"role": "user", "content": "a"}
    every = dict.fromkeys(ChatRequest.model_fields)
    chat = {**every, "messages": [{**message, "name": None, "unknown": None}]}
    assert parse_chat(json.dumps(chat).encode()) == parse_chat(json.dumps({"messages": [message]}).encode())
    options = {"stream": True, "stream_options": {"include_usage": None}}
    assert parse_completion(json.dumps({**GOOD, **options}).encode()).stream_options == StreamOptions()
    with pytest.raises(RequestError, match="stop: "):
        parse_completion(json.dumps({**GOOD, "stop": [None]}).encode())


async def test_the_models_are_listed(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        (entry,) = json.loads((await rank.get("/v1/models"))[1])["data"]
        assert entry["id"] == "echo" and entry["source"] == "load 1"
        assert entry["max_model_len"] == 64 and entry["step"] == 7
        assert json.loads((await rank.get("/v1/models/echo"))[1]) == entry
        assert (await rank.get("/v1/models/other"))[0] == 404


async def test_the_first_token_is_sent_before_the_second_exists(tmp_path: Path) -> None:
    engine = Scripted(free=False)
    async with serving(tmp_path, engine) as rank:
        reader, writer = await asyncio.open_connection("127.0.0.1", rank.port)
        body = json.dumps({"prompt": "abc", "max_tokens": 3, "stream": True}).encode()
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        for letter in (b'"a"', b'"b"', b'"c"'):
            engine.permits.release()
            found = await asyncio.wait_for(reader.readuntil(b"\n\n"), 30)
            assert b'"text":' + letter in found
        writer.close()


async def test_responses_are_not_delayed_by_nagle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as rank:
        accepted = []
        real = socket.socket.setsockopt

        def record(self: socket.socket, *arguments: Any) -> None:
            accepted.append(arguments[:3])
            real(self, *arguments)

        monkeypatch.setattr(socket.socket, "setsockopt", record)
        assert (await rank.complete("abc"))[0] == 200
        assert (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) in accepted


async def test_many_clients_get_their_own_text(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(room=5)) as rank:

        async def one(number: int) -> None:
            prompt, length = f"<{number}>", random.Random(number).randint(1, 40)
            expected = (prompt * 40)[:length]
            if number % 2:
                _, body, _ = await rank.complete(prompt, length)
                assert body["choices"][0]["text"] == expected
            else:
                events = await rank.events({"prompt": prompt, "max_tokens": length})
                assert events[-1] == "[DONE]"
                assert "".join(event["choices"][0]["text"] for event in events[:-1]) == expected

        await asyncio.gather(*(one(number) for number in range(60)))
        assert not rank.engine.running and rank.process.front.in_flight == 0


def test_events_are_parsed_whole() -> None:
    assert parse_events(b'data: {"a":1}\n\ndata: [DONE]\n\n') == [{"a": 1}, "[DONE]"]
