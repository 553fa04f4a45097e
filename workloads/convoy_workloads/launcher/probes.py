"""The launcher's responses to the kubelet's probes of a serving pod. They need neither the agent nor the
operator.

The launcher responds, not the engine, so that an engine whose compute loop hangs stops being ready although
its HTTP server may still run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence

from convoy_workloads.launcher.rank import EXITED, Rank
from convoy_workloads.runtime import heartbeat

STALL_SECONDS = 5.0
"""Seconds without a heartbeat after which a rank is not ready. `CONVOY_STALL_SECONDS` overrides it."""
READ_SECONDS = 2.0
"""Time limit in seconds to receive a request and to send its response."""
MAX_REQUEST = 4096
"""Maximum number of bytes of a request. The kubelet's requests are shorter."""
MAX_CONNECTIONS = 64
"""Maximum number of open connections. Further connections are closed at once."""
# Before Python 3.11, asyncio has a TimeoutError of its own.
_FAILED = (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}


class Readiness:
    """Decides whether the pod accepts requests. The pod is ready if all its ranks are ready."""

    def __init__(self, stall_seconds: float) -> None:
        self._stall_seconds = stall_seconds
        self._started = False
        """True if all ranks have been ready once. The startup probe then succeeds for the rest of the pod's
        life.
        """

    def respond(self, path: str, ranks: Sequence[Rank], ending: bool, now: float) -> tuple[int, str]:
        """Return the status and the text of the response to a probe.

        `ending`: True if the pod ends. `now`: the monotonic time in seconds.
        """
        if path == "/live":
            # A restart of the container would not load the model faster, so /live depends on no rank.
            return 200, "the launcher runs"
        if path not in ("/ready", "/startup"):
            return 404, "the launcher responds to /startup, /ready and /live"
        why = "the pod is ending" if ending else self._refusal(ranks, now)
        self._started = self._started or not why
        if path == "/startup" and self._started:
            return 200, "the ranks have been ready"
        return (503, why) if why else (200, "ready")

    def _refusal(self, ranks: Sequence[Rank], now: float) -> str:
        """Return the reason why the ranks are not ready; an empty text if they are ready."""
        if not ranks:
            return "no rank has been started"
        for rank in ranks:
            if rank.state == EXITED:
                return f"rank {rank.rank} has ended: {rank.outcome()}"
            latest = heartbeat.read(rank.heartbeat_path)
            if heartbeat.ready(latest, now, self._stall_seconds):
                continue
            if latest.state == heartbeat.SERVING:
                return f"the compute loop of rank {rank.rank} has been silent for {now - latest.at:.1f} s"
            states = {heartbeat.DRAINING: "drains", heartbeat.STARTED: "loads its model"}
            return f"rank {rank.rank} {states.get(latest.state, 'has not reported a state')}"
        return ""


class ProbeServer:
    """An HTTP server with three paths: /startup, /ready and /live."""

    def __init__(
        self, environment: Mapping[str, str], ranks: Callable[[], Sequence[Rank]], ending: Callable[[], bool]
    ) -> None:
        """`ranks` returns the current ranks. `ending` returns True if the pod ends."""
        self._port = int(environment.get("CONVOY_READY_PORT") or 0)
        self._readiness = Readiness(float(environment.get("CONVOY_STALL_SECONDS") or STALL_SECONDS))
        self._ranks = ranks
        self._ending = ending
        self._open = 0
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> str:
        """Listen on `CONVOY_READY_PORT`, if it is set. Return the error if the port cannot be used; otherwise
        an empty text.
        """
        if not self._port:
            return ""
        try:
            self._server = await asyncio.start_server(
                self._serve, host=None, port=self._port, reuse_address=True, limit=MAX_REQUEST
            )
        except OSError as error:
            return (
                f"port {self._port} (CONVOY_READY_PORT) for the kubelet's probes cannot be used: "
                f"{os.strerror(error.errno or 0)}. If the pod uses the host's network, choose a free port"
            )
        return ""

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MAX_CONNECTIONS:
                await asyncio.wait_for(self._exchange(reader, writer), READ_SECONDS)
        except _FAILED:
            pass  # The prober has left or sends no valid request. It counts this as a failed probe.
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        words = head.split(b"\r\n", 1)[0].split()
        if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
            status, text = 400, "send a GET request"
        else:
            path = words[1].split(b"?", 1)[0].decode(errors="replace")
            status, text = self._readiness.respond(path, self._ranks(), self._ending(), time.monotonic())
        body = b"" if words[:1] == [b"HEAD"] else f"{text}\n".encode()
        writer.write(
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            + body
        )
        await writer.drain()
