"""The routes for completions and chat as raw ASGI. They are not routes of Starlette, because Starlette's
request and response objects cost more than the tokens of a short answer.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from convoy_workloads.serving.asgi import CLOSE, ClientLeft, Receive, Scope, Send, read_body, respond
from convoy_workloads.serving.errors import Headers, RequestError
from convoy_workloads.serving.front import (
    Front,
    Request,
    check_length,
    failure,
    random_seed,
    request_id,
    watch,
)
from convoy_workloads.serving.openai.bodies import DONE, Chat, Completion, Form, event
from convoy_workloads.serving.openai.requests import (
    MAX_CHOICES,
    CommonRequest,
    parse_chat,
    parse_completion,
)
from convoy_workloads.serving.protocol import Sampling, Token
from convoy_workloads.serving.work_item import Delta

JSON = b"application/json"
EVENTS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # nginx would otherwise collect the tokens, and send them when its buffer is full.
    (b"x-accel-buffering", b"no"),
]
SEND_SECONDS = 5.0
"""Seconds after a request's deadline in which the client may read the rest of the response."""


@dataclass
class Call:
    """A valid request, ready to be queued."""

    options: CommonRequest
    form: Form
    prompts: list[tuple[tuple[int, ...], Sampling]]
    """The prompt and the sampling of each choice."""
    prompt_tokens: int


class Endpoint:
    """The part that both routes have in common."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def prepare(self, body: bytes, id_: str) -> Call:
        """Return the request in `body`. Raises RequestError if it is invalid."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        front = self._front
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request = Request(request_id(headers))
        common: Headers = [(b"x-request-id", request.id.encode())]
        try:
            if scope["method"] != "POST":
                raise RequestError(405, f"send a POST request to {scope['path']}", code="method_not_allowed")
            front.check(headers)
            deadline = front.deadline(headers)
            body = await read_body(headers, receive, front.limits.body_bytes, deadline)
            call = self.prepare(body, request.id)
            front.submit_prompts(request, call.prompts, call.options.stops, deadline)
            watching = asyncio.ensure_future(watch(request, receive))
            try:
                async with asyncio.timeout_at(deadline + SEND_SECONDS):
                    await self._respond(request, call, send, common)
            finally:
                watching.cancel()
        except (ClientLeft, TimeoutError):
            # After a timeout the client does not read. The server closes its connection.
            return
        except RequestError as error:
            if error.status in (400, 404, 405, 408, 413, 415):
                front.metrics.refused("invalid")
            closing = [CLOSE] if front.lifecycle.ending or error.status in (408, 413, 415) else []
            await respond(send, error.status, [*common, *error.headers, *closing], error.body(), JSON)
        finally:
            front.close(request)

    async def _respond(self, request: Request, call: Call, send: Send, common: Headers) -> None:
        first = await request.next()
        if not first:
            return
        if error := _first_failure(first):
            raise error
        if self._front.lifecycle.ending:
            common = [*common, CLOSE]
        if call.options.stream:
            await _stream(request, call, first, send, common)
        else:
            await _whole(request, call, first, send, common)


class CompletionEndpoint(Endpoint):
    """The route `POST /v1/completions`."""

    def prepare(self, body: bytes, id_: str) -> Call:
        """Return the request in `body`. Raises RequestError if it is invalid."""
        options = parse_completion(body)
        front = self._front
        card = front.card(options.model)
        form = Completion(id_, card.name, int(time.time()), front.tokenizer)
        prompts = options.prompts(front.tokenizer)
        if len(prompts) * options.n > MAX_CHOICES:
            raise RequestError(
                400,
                f"n: {len(prompts)} prompts with n={options.n} exceed {MAX_CHOICES} choices",
                "n",
                "invalid_value",
            )
        # The length is checked first: a long prompt must not block the event loop.
        lengths = [check_length(tokens, options.max_tokens, card, "prompt") for tokens in prompts]
        for tokens in prompts:
            if max(tokens) >= front.tokenizer.vocabulary:
                raise RequestError(
                    400,
                    f"prompt: the model has tokens from 0 to {front.tokenizer.vocabulary - 1}",
                    "prompt",
                    "invalid_value",
                )
        chosen = _choices(options, list(zip(prompts, lengths, strict=True)), options.logprobs)
        return Call(options, form, chosen, sum(map(len, prompts)))


class ChatEndpoint(Endpoint):
    """The route `POST /v1/chat/completions`."""

    def prepare(self, body: bytes, id_: str) -> Call:
        """Return the request in `body`. Raises RequestError if it is invalid."""
        options = parse_chat(body)
        front = self._front
        card = front.card(options.model)
        form = Chat(id_, card.name, int(time.time()), front.tokenizer)
        tokens = options.prompt(front.tokenizer)
        length = check_length(tokens, options.max_completion_tokens or options.max_tokens, card, "messages")
        logprobs = (options.top_logprobs or 0) if options.logprobs else None
        return Call(options, form, _choices(options, [(tokens, length)], logprobs), len(tokens))


def _choices(
    options: CommonRequest, prompts: list[tuple[tuple[int, ...], int]], logprobs: int | None
) -> list[tuple[tuple[int, ...], Sampling]]:
    """Return the prompt and the sampling of each choice. Each choice has its own seed."""
    seed = random_seed() if options.seed is None else options.seed
    temperature = 1.0 if options.temperature is None else options.temperature
    top_p = 1.0 if options.top_p is None else options.top_p
    return [
        (tokens, Sampling(length, seed + number, temperature, top_p, options.candidates, logprobs))
        for tokens, length in prompts
        for number in range(options.n)
    ]


async def _stream(
    request: Request, call: Call, deltas: list[tuple[int, Delta]], send: Send, common: Headers
) -> None:
    """Send the deltas as server-sent events, as soon as they are there."""
    form = call.form
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [*EVENTS, *common],
        }
    )
    started: set[int] = set()
    ended: dict[int, Delta] = {}
    while True:
        parts = []
        for index, delta in deltas:
            if error := failure(delta):
                parts.append(event({"error": error.content()}))
                await send({"type": "http.response.body", "body": b"".join(parts)})
                return
            if index not in started:
                started.add(index)
                parts.append(form.first(index))
            parts.append(form.chunk(index, delta))
            if delta.finish:
                ended[index] = delta
        over = len(ended) == len(call.prompts)
        if over:
            if call.options.stream_options and call.options.stream_options.include_usage:
                parts.append(form.usage_event(_usage(call, ended)))
            parts.append(DONE)
        await send({"type": "http.response.body", "body": b"".join(parts), "more_body": not over})
        if over:
            return
        deltas = await request.next()
        if not deltas:
            return


async def _whole(
    request: Request, call: Call, deltas: list[tuple[int, Delta]], send: Send, common: Headers
) -> None:
    """Send one response when all choices have ended."""
    count = len(call.prompts)
    texts: list[list[str]] = [[] for _ in range(count)]
    tokens: list[list[Token]] = [[] for _ in range(count)]
    ended: dict[int, Delta] = {}
    while True:
        if error := _first_failure(deltas):
            raise error
        for index, delta in deltas:
            texts[index].append(delta.text)
            tokens[index] += delta.tokens
            if delta.finish:
                ended[index] = delta
        if len(ended) == count:
            break
        deltas = await request.next()
        if not deltas:
            return
    choices: list[dict[str, Any]] = [
        {
            "index": index,
            **call.form.result("".join(texts[index])),
            "logprobs": call.form.logprobs(tokens[index]) if tokens[index] else None,
            "finish_reason": ended[index].finish,
        }
        for index in range(count)
    ]
    await respond(send, 200, common, call.form.whole(choices, _usage(call, ended)), JSON)


def _first_failure(deltas: list[tuple[int, Delta]]) -> RequestError | None:
    return next((error for _, delta in deltas if (error := failure(delta))), None)


def _usage(call: Call, ended: dict[int, Delta]) -> dict[str, Any]:
    generated = sum(delta.generated for delta in ended.values())
    return {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": generated,
        "total_tokens": call.prompt_tokens + generated,
        "prompt_tokens_details": {"cached_tokens": sum(delta.reused for delta in ended.values())},
    }
