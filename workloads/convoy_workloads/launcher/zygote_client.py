"""The launcher's side of the zygote: starts it, requests forks, receives starts and exits."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from convoy_workloads.launcher.output import write
from convoy_workloads.launcher.zygote import ZYGOTE_FD

READY_SECONDS = 120.0
"""Longest wait for a zygote to import torch; after it the ranks start cold."""
START_SECONDS = 20.0
"""Longest wait for a fork; after it the fork has failed."""


class ZygoteError(Exception):
    """The zygote cannot fork a rank; start the rank cold."""


class _PendingFork(NamedTuple):
    """A requested fork."""

    on_started: Callable[[int], None]
    done: asyncio.Future[None]


class ZygoteClient:
    """The client of one zygote, which runs one interpreter."""

    def __init__(self, python: str, entry: str, on_exit: Callable[[int, int], None]) -> None:
        """`on_exit` gets process id and wait status of each forked rank that exits."""
        self.python = python
        self.pid = 0
        self.seconds = 0.0
        """Seconds that the warm-up took."""
        self._entry = entry
        self._on_exit = on_exit
        self._socket: socket.socket | None = None
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._pending: dict[int, _PendingFork] = {}
        self._tokens = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Return True if the zygote can be asked for forks."""
        return self._socket is not None

    def start(self, environment: Mapping[str, str]) -> None:
        """Start the zygote. Raises ZygoteError if the interpreter cannot be executed."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        printed, output = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                [self.python, self._entry, "--zygote"],
                env={**environment, ZYGOTE_FD: str(theirs.fileno())},
                stdin=subprocess.DEVNULL,
                stdout=output,  # pipes like a rank's, because an interpreter chooses its buffering by them
                stderr=output,
                pass_fds=(theirs.fileno(),),
            )
        except OSError as error:
            ours.close()
            os.close(printed)
            raise ZygoteError(f"the zygote cannot execute {self.python}: {error.strerror}") from error
        finally:
            theirs.close()
            os.close(output)
        self.pid = self._process.pid
        ours.setblocking(False)
        os.set_blocking(printed, False)
        self._socket = ours
        loop = asyncio.get_running_loop()
        loop.add_reader(ours.fileno(), self._read)
        loop.add_reader(printed, _forward, printed)

    async def fork(
        self,
        request: Mapping[str, Any],
        stdout: int,
        stderr: int,
        on_started: Callable[[int], None],
        seconds: float = READY_SECONDS,
    ) -> None:
        """Fork a rank with these ends of its output, after the zygote's warm-up if that still runs.

        `on_started` gets the process id; it is called before `on_exit`.
        """
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), seconds)
        except asyncio.TimeoutError:  # noqa: UP041 - two classes before 3.11
            raise ZygoteError(f"the zygote's warm-up has not ended after {seconds:.0f} s") from None
        if self._socket is None:
            raise ZygoteError("the zygote has ended")
        token = next(self._tokens)
        payload = os.memfd_create("convoy-request")
        try:
            with os.fdopen(os.dup(payload), "wb") as file:
                file.write(json.dumps({**request, "token": token}).encode())
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._pending[token] = _PendingFork(on_started, done)
            socket.send_fds(self._socket, [b"F"], [payload, stdout, stderr])
            await asyncio.wait_for(done, START_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:  # noqa: UP041
            raise ZygoteError(f"the zygote failed to fork: {error}") from error
        finally:
            self._pending.pop(token, None)
            os.close(payload)

    def stop(self) -> None:
        """Close the socket. The zygote ends when it sees that, and kills what it has forked."""
        warm = self._ready.done()
        self._disconnect("")
        if not warm and self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # a zygote in its warm-up does not read the socket
                os.kill(self.pid, signal.SIGKILL)

    def record_exit(self, status: int) -> None:
        """Record the zygote's exit, which the launcher has collected."""
        if self._process is not None:
            self._process.returncode = status  # keeps Popen from waiting for a process that has ended
        self._read()
        self._disconnect(f"ended with wait status {status}")

    def _read(self) -> None:
        while self._socket is not None:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._disconnect("closed its socket")
                return
            self._handle_event(json.loads(data))

    def _handle_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            self.seconds = event["seconds"]
            if not self._ready.done():
                self._ready.set_result(event["torch"])
        elif event["event"] == "started":
            start = self._pending.get(event["token"])
            if start is not None and not start.done.done():
                start.on_started(event["pid"])
                start.done.set_result(None)
            else:  # The launcher gave up this fork and started the rank cold: it must not run twice.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(event["pid"], signal.SIGKILL)
        elif event["event"] == "refused":
            start = self._pending.get(event["token"])
            if start is not None and not start.done.done():
                start.done.set_exception(ZygoteError(event["why"]))
        elif event["event"] == "exited":
            self._on_exit(event["pid"], event["status"])

    def _disconnect(self, why: str) -> None:
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        if why:
            print(f"convoy: the zygote {why}", file=sys.stderr, flush=True)
        error = ZygoteError(f"the zygote {why}")
        waiters: list[asyncio.Future[Any]] = [self._ready, *(start.done for start in self._pending.values())]
        for waiting in waiters:
            if not waiting.done():
                waiting.set_exception(error)
                # Marks the exception as retrieved, so that asyncio does not warn about it.
                waiting.exception()


def _forward(printed: int) -> None:
    """Copy the zygote's output to the container's log until the zygote ends."""
    try:
        data = os.read(printed, 65536)
    except BlockingIOError:
        return
    if data:
        write(data)
    else:
        asyncio.get_running_loop().remove_reader(printed)
        os.close(printed)
