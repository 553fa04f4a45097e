"""The responses to completion and chat requests: whole bodies, and the chunks of a stream."""

from __future__ import annotations

from typing import Any

import orjson

from convoy_workloads.serving.protocol import Token, Tokenizer
from convoy_workloads.serving.work_item import Delta

DONE = b"data: [DONE]\n\n"


def event(body: object) -> bytes:
    """Return a server-sent event."""
    return b"data: " + orjson.dumps(body) + b"\n\n"


class Form:
    """The form of the responses to one request. `Completion` and `Chat` are its two kinds."""

    prefix = ""
    """Prefix of the ids in this kind of response."""
    whole_object = ""
    chunk_object = ""

    def __init__(self, request_id: str, model: str, created: int, tokenizer: Tokenizer) -> None:
        """`created`: Unix time in seconds."""
        self.head: dict[str, Any] = {
            "id": f"{self.prefix}{request_id}",
            "object": self.chunk_object,
            "created": created,
            "model": model,
        }
        self.tokenizer = tokenizer
        head = orjson.dumps(self.head)[:-1]
        self._before = b"data: " + head + b',"choices":[{"index":'

    def first(self, index: int) -> bytes:
        """Return the events that begin a choice; empty if the first delta begins it."""
        raise NotImplementedError

    def plain(self, index: int, text: str) -> bytes:
        """Return the event of a delta that has only text."""
        raise NotImplementedError

    def content(self, text: str) -> dict[str, Any]:
        """Return the entries of a streamed choice that hold its text."""
        raise NotImplementedError

    def result(self, text: str) -> dict[str, Any]:
        """Return the entries of a whole choice that hold its text."""
        raise NotImplementedError

    def logprobs(self, tokens: list[Token]) -> dict[str, Any]:
        """Return the probabilities of the tokens."""
        raise NotImplementedError

    def chunk(self, index: int, delta: Delta) -> bytes:
        """Return the events of a delta."""
        if not delta.finish and not delta.tokens:
            return self.plain(index, delta.text)
        probabilities = self.logprobs(list(delta.tokens)) if delta.tokens else None
        found = b""
        if delta.text or delta.tokens:
            found = self._choice(index, self.content(delta.text), probabilities, None)
        if delta.finish:
            found += self._choice(index, self.content(""), None, delta.finish)
        return found

    def usage_event(self, usage: dict[str, Any]) -> bytes:
        """Return the event with the numbers of tokens, which comes last."""
        return event({**self.head, "choices": [], "usage": usage})

    def whole(self, choices: list[dict[str, Any]], usage: dict[str, Any]) -> bytes:
        """Return the body of a response that is not streamed."""
        return orjson.dumps({**self.head, "object": self.whole_object, "choices": choices, "usage": usage})

    def _choice(
        self, index: int, content: dict[str, Any], probabilities: dict[str, Any] | None, finish: str | None
    ) -> bytes:
        choice = {"index": index, **content, "logprobs": probabilities, "finish_reason": finish}
        return event({**self.head, "choices": [choice]})


class Completion(Form):
    """The form of `POST /v1/completions`."""

    prefix = "cmpl-"
    whole_object = chunk_object = "text_completion"

    def first(self, index: int) -> bytes:
        """Return no event, because a completion has no role."""
        return b""

    def plain(self, index: int, text: str) -> bytes:
        """Return the event of a delta that has only text."""
        return b'%b%d,"text":%b,"logprobs":null,"finish_reason":null}]}\n\n' % (
            self._before,
            index,
            orjson.dumps(text),
        )

    def content(self, text: str) -> dict[str, Any]:
        """Return the entry `text`."""
        return {"text": text}

    def result(self, text: str) -> dict[str, Any]:
        """Return the entry `text`."""
        return {"text": text}

    def logprobs(self, tokens: list[Token]) -> dict[str, Any]:
        """Return the probabilities in the form of completions."""
        return {
            "tokens": [_text(self.tokenizer, one.token) for one in tokens],
            "token_logprobs": [one.logprob for one in tokens],
            "top_logprobs": [
                {_text(self.tokenizer, token): value for token, value in one.alternatives} for one in tokens
            ],
        }


class Chat(Form):
    """The form of `POST /v1/chat/completions`."""

    prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def first(self, index: int) -> bytes:
        """Return the event with the role."""
        return self._choice(index, {"delta": {"role": "assistant", "content": ""}}, None, None)

    def plain(self, index: int, text: str) -> bytes:
        """Return the event of a delta that has only text."""
        return b'%b%d,"delta":{"content":%b},"logprobs":null,"finish_reason":null}]}\n\n' % (
            self._before,
            index,
            orjson.dumps(text),
        )

    def content(self, text: str) -> dict[str, Any]:
        """Return the entry `delta`."""
        return {"delta": {"content": text} if text else {}}

    def result(self, text: str) -> dict[str, Any]:
        """Return the entry `message`."""
        return {"message": {"role": "assistant", "content": text}}

    def logprobs(self, tokens: list[Token]) -> dict[str, Any]:
        """Return the probabilities in the form of chats."""
        return {
            "content": [
                {
                    **_entry(self.tokenizer, one.token, one.logprob),
                    "top_logprobs": [_entry(self.tokenizer, *other) for other in one.alternatives],
                }
                for one in tokens
            ]
        }


def _text(tokenizer: Tokenizer, token: int) -> str:
    """Return the text of a token. Bytes that are no whole character are shown as in OpenAI's API."""
    raw = tokenizer.bytes_of(token)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{one:02x}" for one in raw)


def _entry(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    raw = tokenizer.bytes_of(token)
    return {"token": _text(tokenizer, token), "logprob": logprob, "bytes": list(raw)}
