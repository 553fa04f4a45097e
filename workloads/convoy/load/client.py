"""The requests of a load. Each is sent at its scheduled time, however slow the service is."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from convoy.load.event_stream import DONE, MalformedStream, data_of, parse
from convoy.load.outcome import Kind, Outcome, refused

KEEP_ALIVE_SECONDS = 1.5
"""Seconds after which an idle connection is closed. It is shorter than the time for which a replica that is
ending accepts requests, so no request uses a connection that the replica is about to close.
"""
JSON = {"Content-Type": "application/json"}
UNKNOWN_TYPE = "application/octet-stream"
"""Content type of a response that names none."""
MESSAGE = 200
"""Maximum number of characters of an error that the report shows."""
CODE = 80
"""Maximum number of characters of the code of an error."""


@dataclass(frozen=True)
class Completions:
    """Requests for completions or chats."""

    prompts: tuple[str, ...]
    max_tokens: int
    chat: bool = False
    stream: bool = True
    model: str | None = None

    @property
    def path(self) -> str:
        """Return the path of the route."""
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    def body(self, seed: int) -> bytes:
        """Return the body of a request. The seed chooses the prompt, too."""
        prompt = _choice(self.prompts, seed)
        content: dict[str, Any] = (
            {"messages": [{"role": "user", "content": prompt}]} if self.chat else {"prompt": prompt}
        )
        model = {"model": self.model} if self.model else {}
        made = {**content, **model, "max_tokens": self.max_tokens, "seed": seed, "stream": self.stream}
        return json.dumps(made).encode()


@dataclass(frozen=True)
class Bodies:
    """Requests with given bodies."""

    path: str
    bodies: tuple[str, ...]
    stream: bool = False

    def body(self, seed: int) -> bytes:
        """Return the body of a request."""
        return _choice(self.bodies, seed).encode()


@dataclass(frozen=True)
class Target:
    """The service, and the form of the requests."""

    url: str
    """Address without a path, or with the path /v1."""
    requests: Completions | Bodies
    token: str | None = None
    timeout: float = 30.0
    """Seconds from the scheduled arrival after which a request counts as lost."""
    keep_alive: bool = True
    """False: each request opens a connection of its own. So a Service spreads the requests over all replicas,
    and not only the connections.
    """

    @property
    def address(self) -> str:
        """Return the address of the route."""
        return self.url.rstrip("/").removesuffix("/v1") + self.requests.path

    def body(self, seed: int) -> bytes:
        """Return the body of a request."""
        return self.requests.body(seed)


def _choice(values: tuple[str, ...], seed: int) -> str:
    return random.Random(seed).choice(values)  # noqa: S311 - a repeatable load, no secret


@dataclass
class Load:
    """A load that runs. `stop` ends it early."""

    target: Target
    seed: int
    max_in_flight: int
    record: Callable[[Outcome], None]
    """Function that receives the outcome of each request."""
    started: float = 0.0
    """Unix time in seconds from which the scheduled times count."""
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _in_flight: set[asyncio.Task[None]] = field(default_factory=set)

    def stop(self) -> None:
        """Send no further request."""
        self._stopped.set()

    @property
    def in_flight(self) -> int:
        """Return the number of requests without an outcome."""
        return len(self._in_flight)

    async def run(self, times: Iterable[tuple[int, float]], started: float | None = None) -> float:
        """Send a request at each time, and wait until all have ended. Return the seconds that this took.

        `times`: number of each request, and its time in seconds from the start. `started`: Unix time of the
        start; None to start now.
        """
        now = time.time()
        self.started = now if started is None else started
        start = time.perf_counter() + self.started - now
        headers = {"Authorization": f"Bearer {self.target.token}"} if self.target.token else {}
        connector = (
            aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS)
            if self.target.keep_alive
            else aiohttp.TCPConnector(limit=0, force_close=True)
        )
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            for number, at in times:
                if await self._stops_before(start + at):
                    break
                if len(self._in_flight) >= self.max_in_flight:
                    cause = f"{self.max_in_flight} requests in flight"
                    self.record(Outcome(at, Kind.UNSENT, cause))
                    continue
                body = self.target.body(self.seed + number)
                task = asyncio.create_task(self._request(session, body, at, start))
                self._in_flight.add(task)
                task.add_done_callback(self._in_flight.discard)
            if self._in_flight:
                await asyncio.wait(set(self._in_flight))
        return time.perf_counter() - start

    async def _stops_before(self, when: float) -> bool:
        """Wait until the time `when`. Return True if the load is stopped earlier."""
        pause = when - time.perf_counter()
        if pause > 0 and not self._stopped.is_set():
            try:
                await asyncio.wait_for(self._stopped.wait(), pause)
            except TimeoutError:
                return False
        return self._stopped.is_set()

    async def _request(self, session: aiohttp.ClientSession, body: bytes, at: float, start: float) -> None:
        due = start + at
        delay = time.perf_counter() - due
        try:
            async with asyncio.timeout(self.target.timeout - delay):
                outcome = await self._exchange(session, body, at, due)
        except TimeoutError:
            outcome = Outcome(at, Kind.LOST, f"no end within {self.target.timeout:g} s")
        except (aiohttp.ClientError, OSError) as error:
            outcome = Outcome(at, Kind.LOST, _cause(error), _details(error)[:MESSAGE])
        self.record(
            Outcome(
                at,
                outcome.kind,
                outcome.cause,
                outcome.message,
                delay,
                outcome.first,
                outcome.total or time.perf_counter() - due,
                outcome.events,
            )
        )

    async def _exchange(self, session: aiohttp.ClientSession, body: bytes, at: float, due: float) -> Outcome:
        post = session.post(self.target.address, data=body, headers=JSON, allow_redirects=False)
        async with post as response:
            if 300 <= response.status < 400:
                location = response.headers.get("Location")
                # A followed redirect would be a second request, and often one without a body.
                why = f"the service redirects to {location}: use that address"
                return Outcome(at, Kind.FAILED, f"status {response.status}", why[:MESSAGE])
            if response.status != 200:
                text = await response.text(errors="replace")
                shed = refused(response.status, response.headers.get("Retry-After"))
                kind = Kind.SHED if shed else Kind.FAILED
                return Outcome(at, kind, f"status {response.status}", _message(text))
            if not self.target.requests.stream:
                await response.read()
                return Outcome(at, Kind.OK, total=time.perf_counter() - due)
            return await _read_stream(response, at, due)


async def _read_stream(response: aiohttp.ClientResponse, at: float, due: float) -> Outcome:
    """Read a stream to its end."""
    first, events = 0.0, 0
    try:
        async for data in data_of(response.content.iter_any()):
            if data == DONE:
                return Outcome(at, Kind.OK, first=first, total=time.perf_counter() - due, events=events)
            event = parse(data)
            if event.error:
                return Outcome(at, Kind.FAILED, f"error event {event.error[:CODE]}", event.message[:MESSAGE])
            if event.text:
                events += 1
                first = first or time.perf_counter() - due
    except MalformedStream as error:
        return Outcome(at, Kind.FAILED, "malformed stream", str(error)[:MESSAGE])
    return Outcome(at, Kind.LOST, "the stream ended before [DONE]", _no_events(response))


def _no_events(response: aiohttp.ClientResponse) -> str:
    """Return the content type of a response that is no stream of events; empty for a stream."""
    kind = response.content_type
    return "" if kind in ("text/event-stream", UNKNOWN_TYPE) else f"the response is {kind}; use --no-stream"


def _message(text: str) -> str:
    """Return the message in the body of an error response."""
    try:
        return str(json.loads(text)["error"]["message"])[:MESSAGE]
    except (ValueError, KeyError, TypeError):
        return " ".join(text.split())[:MESSAGE]


def _details(error: Exception) -> str:
    """Return the details of an error of a connection. aiohttp's own text also names TLS for http."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{error.host}:{error.port}: {error.os_error}"
    return str(error)


def _cause(error: Exception) -> str:
    """Return a short name for an error of a connection. It is the same for all addresses."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the host's name has no address"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"no connection: {os.strerror(number).lower() if number else 'unknown error'}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection ended before the response"
    if isinstance(error, aiohttp.ClientPayloadError | ConnectionResetError | aiohttp.ClientOSError):
        return "the connection broke"
    return type(error).__name__
