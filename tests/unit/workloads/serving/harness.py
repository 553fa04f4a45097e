"""A serving rank with a scripted engine, in the test's own process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from convoy_workloads.engines.lm.tokenizer import ByteTokenizer
from convoy_workloads.runtime.heartbeat import Heartbeat, HeartbeatWriter, read
from convoy_workloads.serving.front import Limits
from convoy_workloads.serving.protocol import ModelCard, Prompt, Token, Usage
from convoy_workloads.serving.server import Identity, ServingProcess
from convoy_workloads.serving.settings import Settings

SECONDS = 30.0
"""Time limit of each wait."""


@dataclass
class Scripted:
    """An engine that repeats each prompt. The test lets it run, one iteration at a time if it wants."""

    room: int = 8
    context: int = 64
    tokenizer: Any = field(default_factory=ByteTokenizer)
    permits: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    free: bool = True
    """True if iterations need no permit."""
    loads: list[Exception | None] = field(default_factory=list)
    """The result of each load: an error, or None."""
    broken: Exception | None = None
    """Error that the next iteration raises."""
    may_load: threading.Event = field(default_factory=threading.Event)
    test: Callable[[], None] = lambda: None
    running: dict[int, tuple[Prompt, int]] = field(default_factory=dict)
    admitted: list[Prompt] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    closed: bool = False
    loaded: int = 0

    def load(self, renew: Callable[[], None]) -> ModelCard:
        while not self.may_load.wait(0.01):
            renew()
        error = self.loads.pop(0) if self.loads else None
        if error is not None:
            raise error
        self.loaded += 1
        return ModelCard("echo", self.context, f"load {self.loaded}", {"step": 7})

    def self_test(self) -> None:
        self.test()

    def admit(self, prompt: Prompt) -> bool:
        if len(self.running) >= self.room:
            return False
        self.running[prompt.id] = (prompt, 0)
        self.admitted.append(prompt)
        return True

    def step(self) -> list[Token]:
        if not self.free:
            self.permits.acquire()
        if self.broken is not None:
            raise self.broken
        found = []
        for id_, (prompt, place) in list(self.running.items()):
            self.running[id_] = (prompt, place + 1)
            token = prompt.tokens[place % len(prompt.tokens)]
            found.append(Token(id_, token, -0.5, ((token, -0.5),), reused=3 if place == 0 else None))
        return found

    def cancel(self, sequence: int) -> None:
        self.cancelled.append(sequence)
        self.running.pop(sequence, None)

    def idle(self) -> None:
        pass

    def usage(self) -> Usage:
        return Usage(running=len(self.running), cache_share=len(self.running) / self.room)

    def close(self) -> None:
        self.closed = True


class Rank:
    """A serving rank that runs as a task of the test."""

    def __init__(self, engine: Scripted, process: ServingProcess, heartbeat: Path, admin: Path) -> None:
        self.engine = engine
        self.process = process
        self.admin = admin
        self.port = 0
        self.task: asyncio.Task[int] | None = None
        self.session: aiohttp.ClientSession
        self._heartbeat = heartbeat

    @property
    def heartbeat(self) -> Heartbeat:
        return read(str(self._heartbeat))

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def ended(self) -> int:
        assert self.task is not None
        return await asyncio.wait_for(asyncio.shield(self.task), SECONDS)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds."""
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110 - other threads change what is waited for
                await asyncio.sleep(0.005)

    async def post(
        self, path: str, body: Any, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, Any], Any]:
        """Return the status, the body and the headers of a response."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.base + path, data=data, headers=headers) as response:
            text = await response.read()
            return response.status, json.loads(text) if text else {}, response.headers

    async def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
        async with self.session.get(self.base + path, headers=headers) as response:
            return response.status, await response.text()

    async def complete(
        self, prompt: str, max_tokens: int = 4, **more: Any
    ) -> tuple[int, dict[str, Any], Any]:
        return await self.post("/v1/completions", {"prompt": prompt, "max_tokens": max_tokens, **more})

    async def events(self, body: Any, path: str = "/v1/completions") -> list[Any]:
        """Return the events of a streamed response."""
        data = json.dumps({**body, "stream": True}).encode()
        async with self.session.post(self.base + path, data=data) as response:
            assert response.status == 200, await response.text()
            return parse_events(await response.read())

    async def admin_call(self, method: str, path: str) -> tuple[int, Any]:
        connector = aiohttp.UnixConnector(path=str(self.admin))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, f"http://admin{path}") as response,
        ):
            return response.status, await response.json()


def parse_events(data: bytes) -> list[Any]:
    """Return the events of a body; the last event is the text `[DONE]` if the stream is complete."""
    parts = data.decode().split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") for part in parts)
    return [part[6:] if part == "data: [DONE]" else json.loads(part[6:]) for part in parts]


@contextlib.asynccontextmanager
async def serving(
    folder: Path,
    engine: Scripted | None = None,
    limits: Limits | None = None,
    wait: bool = True,
    **settings: Any,
) -> AsyncIterator[Rank]:
    """Yield a serving rank. It has loaded its model, unless `wait` is False."""
    made = engine or Scripted()
    beat = folder / "heartbeat"
    beat.touch()
    admin = folder / "admin.sock"
    given = {
        "port": 0,
        "host": "127.0.0.1",
        "drain_seconds": SECONDS,
        "endpoint_lag_seconds": 0.0,
        **settings,
    }
    process = ServingProcess(
        made,
        Settings(admin_socket=admin, **given),
        limits or Limits(),
        HeartbeatWriter(str(beat), joined=True),
        Identity("scripted", "echo", "default/job"),
    )
    rank = Rank(made, process, beat, admin)
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    rank.task = asyncio.create_task(process.run(listening.set_result))
    try:
        await asyncio.wait({listening, rank.task}, return_when=asyncio.FIRST_COMPLETED, timeout=SECONDS)
        if rank.task.done():
            rank.task.result()
        rank.port = listening.result()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(SECONDS)) as rank.session:
            if wait:
                made.may_load.set()
                await rank.until(lambda: process.lifecycle.ready)
            yield rank
    finally:
        made.may_load.set()
        made.free = True
        made.permits.release(100_000)
        process.leave()
        await asyncio.wait({rank.task}, timeout=SECONDS)
