"""The server for the files of ranks. It stores each file whole, and one file of the node at a time.

The pods of a node take turns, whatever number of ranks each one has. A rank that sends too slowly loses its
turn. The agent never reads what a file contains: the rank converts its trace, and reports the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import structlog

from convoy_agents import metrics
from convoy_agents.pods.assignment import Assignment
from convoy_agents.pods.fields import MessageError, show
from convoy_agents.pods.messages import TraceHello
from convoy_agents.pods.state import PodState
from convoy_agents.tiercheck.rank_connection import RankConnection
from convoy_agents.tiercheck.rank_server import with_wait_frames
from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tracing.order import TraceOrder, TraceResult
from convoy_agents.tracing.requests import TraceFile, parse_failure, parse_file, parse_part

WAIT_SECONDS = 5.0
"""Seconds between the `wait` frames that a rank gets until it may send its file."""
PART_SECONDS = 10.0
"""Maximum seconds between two parts of a file."""
MIN_RATE = 2**20
"""Bytes per second that a rank must send, beside PART_SECONDS. A slower rank would let others wait."""
MAX_FILES = 8
"""Maximum number of files that a rank may send for one order. Each repeats a file that was not stored."""

Put = Callable[[Assignment, str, str, bytes], Coroutine[Any, Any, None]]
"""(assignment of the job, name of the store, name of the file, bytes) -> write the file, whole or not at all.
Raises StoreError if the store fails.
"""

log = structlog.get_logger()


class TraceServer:
    """Takes the traces of the ranks of one node to their stores."""

    def __init__(self, put: Put, record: Callable[[str, TraceResult], None]) -> None:
        """`record`: records a result for the pod with this uid."""
        self._put = put
        self._record = record
        self._turn = asyncio.Lock()
        self._pod_turns: dict[str, asyncio.Lock] = {}
        """Turns of the ranks within a pod, by pod uid. So a pod has at most one rank in the queue for
        `_turn`, and many ranks of one pod cannot let another pod wait.
        """
        self._files: dict[str, dict[tuple[object, ...], int]] = {}
        """Number of files that were sent for an order, by pod uid and then by order and rank."""

    async def serve(self, pod: Callable[[], PodState], connection: RankConnection) -> None:
        """Serve a rank until it disconnects or its incarnation ends. Raises MessageError for an invalid
        request.
        """
        hello = TraceHello(connection.incarnation, connection.rank)
        async for frame in connection.frames:
            if pod().current != hello.incarnation:
                return
            try:
                await self._handle(pod, connection, hello, frame)
            except (ConnectionError, TimeoutError):
                return

    def drop_pod(self, uid: str) -> None:
        """Drop the counts and the turns of a pod that left the node."""
        self._files.pop(uid, None)
        self._pod_turns.pop(uid, None)

    async def _handle(
        self,
        pod: Callable[[], PodState],
        connection: RankConnection,
        hello: TraceHello,
        frame: dict[str, Any],
    ) -> None:
        if frame["type"] == "traceFailed":
            self._record(pod().uid, parse_failure(frame, hello))
            await connection.send({"type": "noted"})
            return
        if frame["type"] != "traceFile":
            raise MessageError(f"type: {show(frame['type'])} is not traceFile or traceFailed")
        file = parse_file(frame)
        if why := self._refusal(pod(), hello, file):
            await connection.send({"type": "refused", "why": why})
            return
        pod_turn = self._pod_turns.setdefault(pod().uid, asyncio.Lock())
        async with _turn_of(pod_turn, connection), _turn_of(self._turn, connection):
            async with asyncio.timeout(PART_SECONDS + file.bytes / MIN_RATE):
                await connection.send({"type": "send"})
                data = await _receive(connection, file)
            await self._store(pod, connection, hello, file, data)

    def _refusal(self, pod: PodState, hello: TraceHello, file: TraceFile) -> str:
        """Return why the agent takes no such file from the rank now; empty if it does."""
        order = _order(pod, hello)
        if order is None or order.id != file.order:
            return "the recording is over, or was never asked for"
        if file.bytes > order.max_bytes:
            return f"the file has {file.bytes} bytes; the budget is {order.max_bytes}"
        counts = self._files.setdefault(pod.uid, {})
        # Only counts of the present incarnation matter, so the others are dropped here.
        key = (hello.incarnation, order.id, hello.rank)
        for old in [one for one in counts if one[:2] != key[:2]]:
            del counts[old]
        if counts.get(key, 0) >= MAX_FILES:
            return f"the rank has sent its file {MAX_FILES} times"
        counts[key] = counts.get(key, 0) + 1
        return ""

    async def _store(
        self,
        pod: Callable[[], PodState],
        connection: RankConnection,
        hello: TraceHello,
        file: TraceFile,
        data: bytes,
    ) -> None:
        state = pod()
        order, plan = _order(state, hello), state.assignment
        if order is None or plan is None or order.id != file.order:
            await connection.send({"type": "refused", "why": "the recording ended meanwhile"})
            return
        try:
            await with_wait_frames(
                connection, self._put(plan, order.store, order.file_name(hello.rank), data)
            )
        except StoreError as error:
            metrics.TRACES.labels("failed").inc()
            log.warning("trace not stored", job=plan.job, rank=hello.rank, why=str(error))
            await connection.send({"type": "failed", "why": str(error)[:512], "retry": error.retriable})
            return
        metrics.TRACES.labels("stored").inc()
        log.info("trace stored", job=plan.job, rank=hello.rank, recording=order.recording, bytes=len(data))
        self._record(state.uid, file.stored(hello))
        await connection.send({"type": "stored"})


@contextlib.asynccontextmanager
async def _turn_of(lock: asyncio.Lock, connection: RankConnection) -> AsyncIterator[None]:
    """Hold a lock. Until it is free, the rank gets `wait` frames."""
    while True:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await lock.acquire()
        except TimeoutError:
            await connection.send({"type": "wait"})
        else:
            break
    try:
        yield
    finally:
        lock.release()


async def _receive(connection: RankConnection, file: TraceFile) -> bytes:
    """Return the bytes of a file. Raises MessageError if they are not the announced ones, and TimeoutError
    if no part arrives for PART_SECONDS.
    """
    data = bytearray()
    while len(data) < file.bytes:
        async with asyncio.timeout(PART_SECONDS):
            frame = await anext(connection.frames, None)
        if frame is None:
            raise ConnectionError("the rank disconnected while it sent its file")
        part = parse_part(frame)
        if not part:
            raise MessageError("data: a part is empty")
        data += part
    if len(data) != file.bytes or hashlib.sha256(data).hexdigest() != file.sha256:
        raise MessageError("the bytes of the file differ from its size or sha256")
    return bytes(data)


def _order(pod: PodState, hello: TraceHello) -> TraceOrder | None:
    """Return the order under which the rank records; None if there is none."""
    plan = pod.assignment
    if plan is None or plan.incarnation != hello.incarnation or plan.trace is None:
        return None
    return plan.trace if hello.rank in plan.trace.ranks else None
