"""Servers of the bench of the front. They stream a fixed number of tokens without computing any.

`python -m convoy_workloads.bench.serving.front_servers KIND PORT TOKENS`:

- `front`: Convoy's front, with an engine that gives each sequence one fixed token an iteration.
- `raw`: raw ASGI that sends prepared bytes, as the limit of what the HTTP server can do.
- `starlette`: Starlette's StreamingResponse with one event a token, as a program would be written by hand.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable

import orjson
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from convoy_workloads.engines.lm.tokenizer import ByteTokenizer
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.serving.asgi import Receive, Scope, Send
from convoy_workloads.serving.front import Limits
from convoy_workloads.serving.protocol import ModelCard, Prompt, Token, Tokenizer, Usage
from convoy_workloads.serving.server import Identity, ServingProcess
from convoy_workloads.serving.settings import Settings

HEAD = {"id": "cmpl-0", "object": "text_completion", "created": 0, "model": "null"}


class NullEngine:
    """An engine that gives each sequence the token `x` in each iteration."""

    def __init__(self) -> None:
        self.tokenizer: Tokenizer = ByteTokenizer()
        self._running: set[int] = set()

    def load(self, renew: Callable[[], None]) -> ModelCard:
        """Load nothing."""
        return ModelCard("null", 1024, "no model: each token is x")

    def self_test(self) -> None:
        """Test nothing."""

    def admit(self, prompt: Prompt) -> bool:
        """Accept every prompt."""
        self._running.add(prompt.id)
        return True

    def step(self) -> list[Token]:
        """Return a token for each sequence."""
        return [Token(one, 120) for one in self._running]

    def cancel(self, sequence: int) -> None:
        """Drop a sequence."""
        self._running.discard(sequence)

    def idle(self) -> None:
        """Do nothing."""

    def usage(self) -> Usage:
        """Return the number of sequences."""
        return Usage(len(self._running))

    def close(self) -> None:
        """Do nothing."""


async def front(port: int) -> None:
    """Serve Convoy's front."""
    settings = Settings(port=port, host="127.0.0.1", endpoint_lag_seconds=0)
    identity = Identity("null", "null", "")
    process = ServingProcess(NullEngine(), settings, Limits(queue=4096), HeartbeatWriter(""), identity)
    await process.run()


def events(tokens: int) -> list[bytes]:
    """Return the events of a response."""
    one = {"index": 0, "text": "x", "logprobs": None, "finish_reason": None}
    last = {"index": 0, "text": "", "logprobs": None, "finish_reason": "length"}
    found = [{**HEAD, "choices": [one]}] * tokens + [{**HEAD, "choices": [last]}]
    return [b"data: " + orjson.dumps(body) + b"\n\n" for body in found] + [b"data: [DONE]\n\n"]


def raw(tokens: int) -> Callable[[Scope, Receive, Send], object]:
    """Return an application that sends prepared bytes, one message a token."""
    parts = events(tokens)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for part in parts[:-1]:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": parts[-1]})

    return app


def starlette(tokens: int) -> Starlette:
    """Return an application with Starlette's StreamingResponse."""

    async def complete(request: Request) -> Response:
        await request.json()

        async def parts() -> AsyncIterator[bytes]:
            for part in events(tokens):
                yield part

        return StreamingResponse(parts(), media_type="text/event-stream")

    async def readyz(_: Request) -> Response:
        return Response()

    return Starlette(routes=[Route("/v1/completions", complete, methods=["POST"]), Route("/readyz", readyz)])


def main() -> None:
    """Run one server until SIGTERM."""
    kind, port, tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if kind == "front":
            runner.run(front(port))
            return
        app = {"raw": raw, "starlette": starlette}[kind](tokens)
        config = uvicorn.Config(
            app,  # type: ignore[arg-type]
            port=port,
            loop="none",
            http="httptools",
            lifespan="off",
            log_config=None,
            access_log=False,
        )
        runner.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main()
