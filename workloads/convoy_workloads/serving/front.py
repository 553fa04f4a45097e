"""The requests in flight. The front checks requests, queues their work items and hands out their deltas."""

from __future__ import annotations

import asyncio
import itertools
import math
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from convoy_workloads.serving.asgi import ClientLeft, Receive
from convoy_workloads.serving.auth import TokenFile
from convoy_workloads.serving.compute import ComputeLoop, QueueFull
from convoy_workloads.serving.errors import RequestError, not_ready, queue_full
from convoy_workloads.serving.generation import Generation
from convoy_workloads.serving.lifecycle import Lifecycle
from convoy_workloads.serving.metrics import Metrics
from convoy_workloads.serving.protocol import ModelCard, Prompt, Sampling, Tokenizer
from convoy_workloads.serving.work_item import CANCELLED, DEADLINE, LENGTH, STOP, Delta, WorkItem

RETRY_SECONDS = 1.0
"""Value of Retry-After for a full queue."""
LISTED_NAMES = 8
"""Maximum number of models that an error names."""
_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_SEED = 2**63


@dataclass(frozen=True)
class Limits:
    """The limits of a serving rank."""

    queue: int = 256
    """Maximum number of work items that wait for admission."""
    body_bytes: int = 1 << 20
    request_seconds: float = 600.0
    """Maximum seconds for a request. A client may ask for a shorter time by the header X-Request-Timeout."""


class Request:
    """A request in flight."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        """Id that the client has chosen, or a random one. Several requests may have the same id."""
        self.items: list[WorkItem] = []
        self.left = False
        """True if the client has left."""
        self._deltas: list[tuple[int, Delta]] = []
        self._waiter: asyncio.Future[None] | None = None

    def push(self, choice: int, delta: Delta) -> None:
        """Add a delta of a work item. `choice`: number of the item in the request."""
        self._deltas.append((choice, delta))
        self._wake()

    def leave(self) -> None:
        """Record that the client has left."""
        self.left = True
        self._wake()

    async def next(self) -> list[tuple[int, Delta]]:
        """Wait for deltas and return them. Return an empty list if the client has left."""
        while not self._deltas and not self.left:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        found, self._deltas = self._deltas, []
        return [] if self.left else found

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Front:
    """The common part of all routes."""

    def __init__(
        self,
        compute: ComputeLoop,
        lifecycle: Lifecycle,
        metrics: Metrics,
        tokenizer: Tokenizer | None,
        limits: Limits,
        token: TokenFile | None,
    ) -> None:
        """`tokenizer`: that of a text model; None if the engine serves tensors."""
        self.compute = compute
        self.lifecycle = lifecycle
        self.metrics = metrics
        self._tokenizer = tokenizer
        self.limits = limits
        self.idle = asyncio.Event()
        """Set if no request is in flight."""
        self.idle.set()
        self._token = token
        self._live: dict[int, Request] = {}
        self._numbers = itertools.count(1)

    @property
    def in_flight(self) -> int:
        """Number of requests in flight."""
        return len(self._live)

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise RequestError if the client has no valid token, or if this replica accepts no requests."""
        self.authenticate(headers)
        if not self.lifecycle.accepts:
            self.metrics.refused("not_ready")
            raise not_ready(self.lifecycle.reason)

    def authenticate(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise RequestError if requests need a token and this one has no valid token."""
        if self._token is not None and not self._token.accepts(headers.get(b"authorization", b"")):
            self.metrics.refused("unauthorized")
            raise RequestError(
                401,
                "send the service's token in the header `Authorization: Bearer TOKEN`",
                code="invalid_token",
            )

    def card(self, model: str | None) -> ModelCard:
        """Return a model. `None` means the replica's own. Raises RequestError if it is not loaded, or if
        there is no model of that name.
        """
        card = self.compute.card
        if card is None:
            raise not_ready(self.lifecycle.reason)
        if model is None:
            return card
        found = self.compute.cards.get(model)
        if found is None:
            raise RequestError(
                404,
                f"model: there is no model {model!r}; GET /v1/models lists {self._some_names()}",
                "model",
                "model_not_found",
            )
        return found

    def _some_names(self) -> str:
        """Return the names of the first models, for an error."""
        names = sorted(self.compute.cards)
        more = f" and {len(names) - LISTED_NAMES} others" if len(names) > LISTED_NAMES else ""
        return ", ".join(map(repr, names[:LISTED_NAMES])) + more if names else "no model"

    def deadline(self, headers: Mapping[bytes, bytes]) -> float:
        """Return the monotonic time at which a request must have ended. Raises RequestError if the header
        X-Request-Timeout is malformed.
        """
        text = headers.get(b"x-request-timeout")
        longest = self.limits.request_seconds
        try:
            seconds = longest if text is None else float(text)
        except ValueError:
            seconds = math.nan
        if not seconds > 0:
            raise RequestError(
                400,
                "X-Request-Timeout: must be a number of seconds above 0",
                "X-Request-Timeout",
                "invalid_value",
            )
        return time.monotonic() + min(seconds, longest)

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer. Raises RequestError if the engine serves tensors."""
        if self._tokenizer is None:
            why = "this model continues no text: send tensors to POST /v2/models/NAME/infer"
            raise RequestError(404, why, code="not_found")
        return self._tokenizer

    def new_id(self) -> int:
        """Return an id that no other work item has."""
        return next(self._numbers)

    def submit_prompts(
        self,
        request: Request,
        prompts: list[tuple[tuple[int, ...], Sampling]],
        stop: tuple[str, ...],
        deadline: float,
    ) -> None:
        """Queue a generation for each prompt. The caller must call `close` afterwards, whatever happens.

        Raises RequestError if the queue is full.
        """
        tokenizer = self.tokenizer
        self.submit(
            request,
            [
                Generation(
                    Prompt(self.new_id(), tokens, sampling), tokenizer, stop, deadline, (choice, request.push)
                )
                for choice, (tokens, sampling) in enumerate(prompts)
            ],
        )

    def submit(self, request: Request, items: Iterable[WorkItem]) -> None:
        """Queue the work items of a request. The caller must call `close` afterwards, whatever happens.

        Raises RequestError if the queue is full.
        """
        request.items = list(items)
        try:
            self.compute.submit(request.items)
        except QueueFull:
            request.items = []
            self.metrics.refused("queue_full")
            raise queue_full(self.limits.queue, RETRY_SECONDS) from None
        self._live[id(request)] = request
        self.idle.clear()

    @contextmanager
    def request(self, headers: Mapping[bytes, bytes], receive: Receive) -> Iterator[Request]:
        """Yield a request whose work items are submitted in this context. They are cancelled when the client
        leaves, and when the context ends.
        """
        request = Request(request_id(headers))
        watching = asyncio.ensure_future(watch(request, receive))
        try:
            yield request
        finally:
            watching.cancel()
            self.close(request)

    def close(self, request: Request) -> None:
        """End a request. Its work items that still run are cancelled."""
        left = [one for one in request.items if not one.ended]
        if left:
            self.compute.cancel(left)
        if self._live.pop(id(request), None) is not None and not self._live:
            self.idle.set()

    def cancel(self, request_id: str) -> int:
        """Cancel the requests with this id. Return their number."""
        found = [one for one in self._live.values() if one.id == request_id]
        for one in found:
            self.compute.cancel(one.items)
        return len(found)


async def watch(request: Request, receive: Receive) -> None:
    """Wait until the client leaves, and record it."""
    while (await receive())["type"] != "http.disconnect":
        pass
    request.leave()


def request_id(headers: Mapping[bytes, bytes]) -> str:
    """Return the value of X-Request-Id if it is usable, else a new id."""
    given = headers.get(b"x-request-id", b"")
    return given.decode() if _ID.fullmatch(given) else secrets.token_hex(12)


def random_seed() -> int:
    """Return a random seed for a request that gives none."""
    return secrets.randbelow(_SEED)


def check_length(tokens: tuple[int, ...], max_tokens: int | None, card: ModelCard, field: str) -> int:
    """Return the maximum number of tokens to generate after a prompt. `None` fills the model's context.

    Raises RequestError, with the name of the field, if the prompt or `max_tokens` does not fit.
    """
    if not tokens:
        raise RequestError(400, f"{field}: must not be empty", field, "invalid_value")
    room = card.context - len(tokens)
    if room < 1:
        raise RequestError(
            400,
            f"{field}: has {len(tokens)} tokens; the model's context has {card.context}, and a continuation "
            "needs at least 1",
            field,
            "context_length_exceeded",
        )
    if max_tokens is None:
        return room
    if max_tokens > room:
        raise RequestError(
            400,
            f"max_tokens: {max_tokens} does not fit after a prompt of {len(tokens)} tokens; the model's "
            f"context has {card.context}: at most {room}",
            "max_tokens",
            "context_length_exceeded",
        )
    return max_tokens


async def outputs_of(request: Request) -> Mapping[str, Any]:
    """Return the outputs of the only work item of a request.

    Raises ClientLeft if the client has left, and RequestError if the work item has failed.
    """
    deltas = await request.next()
    if not deltas:
        raise ClientLeft
    delta = deltas[-1][1]
    if error := failure(delta):
        raise error
    return delta.outputs or {}


def failure(delta: Delta) -> RequestError | None:
    """Return the error that a delta ends with; None if its work item has succeeded or goes on."""
    if delta.error is not None:
        return delta.error
    if delta.finish in ("", STOP, LENGTH):
        return None
    if delta.finish == DEADLINE:
        return RequestError(504, delta.message, code="deadline_exceeded")
    if delta.finish == CANCELLED:
        return RequestError(503, "the request was cancelled", code="cancelled", retry=RETRY_SECONDS)
    return RequestError(503, delta.message, code="engine_failed", retry=RETRY_SECONDS)
