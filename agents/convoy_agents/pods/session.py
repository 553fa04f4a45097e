"""The session of one pod: the pod's socket and connections. It passes events to the rules and performs the
actions.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from convoy_agents import metrics
from convoy_agents.guard import windows
from convoy_agents.pods import limits, tally
from convoy_agents.pods.connection import Connection, Partial
from convoy_agents.pods.fields import MessageError
from convoy_agents.pods.frames import FrameError
from convoy_agents.pods.messages import (
    LauncherHello,
    MemoryHello,
    RankHello,
    TraceHello,
    parse_from_launcher,
    parse_hello,
)
from convoy_agents.pods.rank_events import parse_from_rank
from convoy_agents.pods.rules import reduce
from convoy_agents.pods.state import Event, LauncherDisconnected, PodState, Urgency
from convoy_agents.spot.draining import Draining, parse_draining
from convoy_agents.tiercheck.rank_connection import RankConnection
from convoy_agents.traffic import totals
from convoy_agents.wire import hub_pb2

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of a pod's session. All of them except `memory` and `trace` must return without waiting."""

    save: Callable[[PodState], None]
    changed: Callable[[str, Urgency], None]
    """Schedules a report to the hub. The arguments are the pod's uid and the urgency of the report."""
    advanced: Callable[[PodState], None]
    """Handles a pod that has a new assignment or has seen a later incarnation."""
    memory: Callable[[Callable[[], PodState], RankConnection], Awaitable[None]]
    """Serves the memory requests of one rank until the rank disconnects."""
    trace: Callable[[Callable[[], PodState], RankConnection], Awaitable[None]]
    """Takes the trace of one rank to its store until the rank disconnects."""
    telemetry: Callable[[str, int, tuple[hub_pb2.StepWindow, ...]], None]
    """Stores step windows of one rank. The arguments are the pod's uid, the incarnation and the windows."""
    traffic: Callable[[hub_pb2.PodTraffic], None]
    """Stores the totals of a pod's requests."""
    draining: Callable[[str, Draining], None]
    """Records a program's report that another node is about to disappear. The first argument is the uid of
    the program's pod.
    """


class PodSession:
    """The state, the listening socket and the connections of one pod."""

    def __init__(self, state: PodState, path: Path, hooks: Hooks) -> None:
        self.state = state
        self._path = path
        self._hooks = hooks
        self._server: asyncio.Server | None = None
        self._launcher: Connection | None = None
        self._ranks: dict[int, Connection] = {}
        self._memories: set[Connection] = set()
        self._traces: set[Connection] = set()
        self._open: set[Connection] = set()
        self._partial = Partial()
        self._frame_rate = limits.RateLimiter(limits.FRAMES_PER_SECOND, limits.FRAMES_BURST)
        self._memory_rate = limits.RateLimiter(limits.MEMORY_FRAMES_PER_SECOND, limits.MEMORY_FRAMES_BURST)
        self._trace_rate = limits.RateLimiter(limits.TRACE_FRAMES_PER_SECOND, limits.TRACE_FRAMES_BURST)
        now = asyncio.get_running_loop().time()
        self._dial_limit = limits.TokenBucket(limits.DIALS_PER_SECOND, limits.DIALS_BURST, now)
        self._log_limit = limits.TokenBucket(limits.LOGS_PER_SECOND, limits.LOGS_BURST, now)
        self._log = log.bind(pod_uid=state.uid)
        self._opened = time.time()
        self._order: tally.LaunchOrder | None = None

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._open)

    async def open(self) -> None:
        """Listen at the path, and replace the socket of an earlier agent. Raises OSError if this fails."""
        fresh = self._path.with_name(self._path.name + ".new")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            fresh.unlink(missing_ok=True)
            sock.bind(str(fresh))
            # Any user of the pod may connect. Other pods cannot, because only this pod sees the folder.
            fresh.chmod(0o666)
            sock.listen(limits.MAX_CONNECTIONS)
            # The rename is atomic, so clients always find a socket that accepts connections.
            fresh.rename(self._path)
            self._server = await asyncio.start_unix_server(self._serve, sock=sock)
        except OSError:
            sock.close()
            fresh.unlink(missing_ok=True)
            raise

    async def close(self) -> None:
        """Stop listening and close all connections. Keep the socket file, so that the next agent can
        replace it.
        """
        if self._server:
            self._server.close()
        for connection in tuple(self._open):
            connection.close()

    def dispatch(self, event: Event) -> str:
        """Apply the rules to an event and perform the actions. Return the description of the sender's
        protocol error; empty if there is none.
        """
        outcome = reduce(self.state, event)
        if outcome.save:
            self._hooks.save(outcome.state)
        older, self.state = self.state, outcome.state
        self._count(event, older)
        for frame in outcome.to_launcher:
            if self._launcher:
                self._launcher.send(frame)
        if outcome.to_ranks:
            for connection in tuple(self._ranks.values()):
                if connection.incarnation == outcome.to_ranks["incarnation"]:
                    connection.send(outcome.to_ranks)
        if self.state.current != older.current:
            for connection in [*self._ranks.values(), *self._memories, *self._traces]:
                if connection.incarnation != self.state.current:
                    connection.close()
        if self.state.assignment is not older.assignment or self.state.seen != older.seen:
            self._hooks.advanced(self.state)
        self._hooks.changed(self.state.uid, outcome.urgency)
        return outcome.problem

    def _count(self, event: Event, older: PodState) -> None:
        before, last = self._order, tally.latest_order(self._order, event, older, self.state, time.time())
        self._order = last
        if last is not before and last is not None and last.in_place:
            metrics.RESTARTS_IN_PLACE.inc()
        if self.state.ranks is older.ranks:
            return
        if last is not None:
            for seconds in tally.start_seconds(last, older, self.state):
                metrics.RANK_START_SECONDS.labels(last.kind).observe(seconds)
        for kind in tally.exits(self._opened, older, self.state):
            metrics.RANK_EXITS.labels(kind).inc()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer, self._partial, self._frame_rate)
        if len(self._open) >= limits.MAX_CONNECTIONS:
            metrics.POD_PROTOCOL_ERRORS.labels("connections").inc()
            connection.close()
            return
        self._open.add(connection)
        try:
            await self._handle_frames(connection)
        except TimeoutError:
            self._reject(connection, "hello", "no hello within the time limit")
        except FrameError as error:
            self._reject(connection, "frame", str(error))
        except MessageError as error:
            self._reject(connection, "message", str(error))
        finally:
            self._open.discard(connection)
            connection.close()
            self._disconnected(connection)

    async def _handle_frames(self, connection: Connection) -> None:
        if pause := self._dial_limit.spend(1, asyncio.get_running_loop().time()):
            await asyncio.sleep(pause)
        frames = connection.frames()
        async with contextlib.aclosing(frames):
            async with asyncio.timeout(limits.HELLO_SECONDS):
                first = await anext(frames, None)
            if first is None:
                return
            hello = parse_hello(first)
            if isinstance(hello, LauncherHello):
                self._join_launcher(connection, hello)
                async for frame in frames:
                    if (event := parse_from_launcher(frame)) is not None and (why := self.dispatch(event)):
                        raise MessageError(why)
                return
            if isinstance(hello, MemoryHello):
                await self._serve_memory(connection, hello, frames)
                return
            if isinstance(hello, TraceHello):
                await self._serve_trace(connection, hello, frames)
                return
            self._join_rank(connection, hello)
            async for frame in frames:
                if self.state.current != hello.incarnation:
                    return  # the rank's incarnation has ended, so the rank will exit
                self._handle_rank_frame(hello, frame)

    def _join_launcher(self, connection: Connection, hello: LauncherHello) -> None:
        if self._launcher:
            self._launcher.close()
        self._launcher = connection
        self._log.info(
            "launcher connected", incarnation=hello.incarnation, peer=connection.peer(), python=hello.python
        )
        self.dispatch(hello)

    def _join_rank(self, connection: Connection, hello: RankHello) -> None:
        if why := self.state.rank_refusal(hello.incarnation, hello.rank):
            raise MessageError(why)
        connection.incarnation, connection.rank = hello.incarnation, hello.rank
        if before := self._ranks.get(hello.rank):
            before.close()
        self._ranks[hello.rank] = connection
        if (frame := self.state.welcome_frame) is not None:
            connection.send(frame)
        self._log.debug(
            "rank connected", rank=hello.rank, incarnation=hello.incarnation, peer=connection.peer()
        )

    def _handle_rank_frame(self, hello: RankHello, frame: Mapping[str, Any]) -> None:
        if frame["type"] == "telemetry":
            if not self._is_current(hello):
                return  # the window belongs to an outdated incarnation
            self._hooks.telemetry(self.state.uid, hello.incarnation, windows.parse(frame, hello.rank))
        elif frame["type"] == "traffic":
            if self._is_current(hello) and hello.rank == 0:
                self._hooks.traffic(totals.parse(frame, self.state.uid, hello.incarnation))
        elif frame["type"] == "draining":
            if self._is_current(hello):
                self._hooks.draining(self.state.uid, parse_draining(frame))
        elif (event := parse_from_rank(frame, hello)) is not None and (why := self.dispatch(event)):
            raise MessageError(why)

    def _is_current(self, hello: RankHello) -> bool:
        """Return True if a rank belongs to the pod's present assignment."""
        plan = self.state.assignment
        return plan is not None and plan.incarnation == hello.incarnation and hello.rank in plan.ranks

    async def _serve_memory(
        self, connection: Connection, hello: MemoryHello, frames: AsyncIterator[dict[str, Any]]
    ) -> None:
        if why := self.state.rank_refusal(hello.incarnation, hello.rank):
            raise MessageError(why)
        if sum(one.rank == hello.rank for one in self._memories) >= limits.MAX_MEMORY_CONNECTIONS:
            raise MessageError("too many memory connections of one rank")
        connection.incarnation, connection.rank = hello.incarnation, hello.rank
        connection.rate_limiter = self._memory_rate
        self._memories.add(connection)
        try:
            with connection.raw() as raw:
                await self._hooks.memory(lambda: self.state, RankConnection(connection, raw, frames))
        finally:
            self._memories.discard(connection)

    async def _serve_trace(
        self, connection: Connection, hello: TraceHello, frames: AsyncIterator[dict[str, Any]]
    ) -> None:
        if why := self.state.rank_refusal(hello.incarnation, hello.rank):
            raise MessageError(why)
        for before in [one for one in self._traces if one.rank == hello.rank]:
            before.close()
        connection.incarnation, connection.rank = hello.incarnation, hello.rank
        connection.rate_limiter = self._trace_rate
        self._traces.add(connection)
        try:
            with connection.raw() as raw:
                await self._hooks.trace(lambda: self.state, RankConnection(connection, raw, frames))
        finally:
            self._traces.discard(connection)

    def _disconnected(self, connection: Connection) -> None:
        if self._launcher is connection:
            self._launcher = None
            self._log.info("launcher gone")
            self.dispatch(LauncherDisconnected())
        if self._ranks.get(connection.rank) is connection:
            del self._ranks[connection.rank]

    def _reject(self, connection: Connection, kind: str, why: str) -> None:
        metrics.POD_PROTOCOL_ERRORS.labels(kind).inc()
        if self._log_limit.spend(1, asyncio.get_running_loop().time()):
            return  # the limit prevents a pod from flooding the log
        self._log.warning("connection ended", why=why, rank=connection.rank)
