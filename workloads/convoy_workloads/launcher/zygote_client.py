"""The launcher's client of a zygote. It starts the zygote, requests forks, and receives the starts and
exits of forks.
"""

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
"""Maximum number of seconds to wait until a zygote has imported torch. After this time the ranks start
cold.
"""
START_SECONDS = 20.0
"""Maximum number of seconds to wait for a fork. After this time the fork counts as failed."""


class ZygoteError(Exception):
    """Raised if the zygote cannot fork a rank. The caller then starts the rank cold."""


class _PendingFork(NamedTuple):
    """A fork that was requested but has not started."""

    on_started: Callable[[int], None]
    done: asyncio.Future[None]


class ZygoteClient:
    """The client of one zygote. A zygote runs one interpreter."""

    def __init__(self, python: str, entry: str, on_exit: Callable[[int, int], None]) -> None:
        """Create the client without starting the zygote. `on_exit` is called with the process id and wait
        status of each forked rank that exits.
        """
        self.python = python
        self.pid = 0
        self.seconds = 0.0
        """Duration of the zygote's warm-up in seconds."""
        self._entry = entry
        self._on_exit = on_exit
        self._socket: socket.socket | None = None
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._pending: dict[int, _PendingFork] = {}
        self._tokens = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Return True if the zygote was started and its socket is still open."""
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
                # Use pipes, as for a rank. The interpreter chooses the buffering of its output by the type of
                # its file, and the forks inherit that choice.
                stdout=output,
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
        """Fork a rank whose output goes to the descriptors `stdout` and `stderr`. If the zygote's warm-up
        still runs, wait for its end.

        `on_started` is called with the process id of the rank. It is called before `on_exit`. Raises
        ZygoteError if the zygote cannot fork the rank.
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
        """Close the socket. The zygote notices this, kills all its forks and ends."""
        warm = self._ready.done()
        self._disconnect("")
        if not warm and self._process is not None and self._process.returncode is None:
            # A zygote in its warm-up does not read the socket, so kill it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def record_exit(self, status: int) -> None:
        """Record the exit of the zygote with the wait status `status`. The launcher has already collected
        the process.
        """
        if self._process is not None:
            # Set this so that Popen does not wait for a process that was already collected.
            self._process.returncode = status
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
            else:  # The launcher gave up this fork and started the rank cold, so this fork must not run.
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
                # Retrieve the exception, so that asyncio does not warn that it was never retrieved.
                waiting.exception()


def _forward(printed: int) -> None:
    """Copy the zygote's output that has arrived to the container's log. At the end of the output, close the
    pipe.
    """
    try:
        data = os.read(printed, 65536)
    except BlockingIOError:
        return
    if data:
        write(data)
    else:
        asyncio.get_running_loop().remove_reader(printed)
        os.close(printed)
