"""The launcher's side of the zygote: starts it, asks for forks, hears of starts and exits."""

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
"""An import of torch that takes longer is not waited for; the ranks start cold."""
START_SECONDS = 20.0
"""A fork that takes longer has failed."""


class NurseryError(Exception):
    """The zygote cannot fork a rank; start it cold."""


class _Start(NamedTuple):
    """A fork that was asked for."""

    on_started: Callable[[int], None]
    done: asyncio.Future[None]


class Nursery:
    """One zygote of one interpreter."""

    def __init__(self, python: str, entry: str, on_exit: Callable[[int, int], None]) -> None:
        """`on_exit` gets process id and wait status of a forked rank."""
        self.python = python
        self.pid = 0
        self.seconds = 0.0
        """How long it took to get warm."""
        self._entry = entry
        self._on_exit = on_exit
        self._socket: socket.socket | None = None
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._starts: dict[int, _Start] = {}
        self._tokens = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether it can be asked for forks."""
        return self._socket is not None

    def start(self, environment: Mapping[str, str]) -> None:
        """Starts the zygote; NurseryError when the interpreter cannot be run."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        printed, output = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                [self.python, self._entry, "--zygote"],
                env={**environment, ZYGOTE_FD: str(theirs.fileno())},
                stdin=subprocess.DEVNULL,
                stdout=output,  # pipes, as a rank's are: an interpreter chooses its buffers by them
                stderr=output,
                pass_fds=(theirs.fileno(),),
            )
        except OSError as error:
            ours.close()
            os.close(printed)
            raise NurseryError(f"{self.python}: {error.strerror}") from error
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
        """Forks a rank with these ends of its output; waits for a zygote that is not warm yet.

        `on_started` gets its process id, and before `on_exit` does.
        """
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), seconds)
        except asyncio.TimeoutError:  # noqa: UP041 - two classes before 3.11
            raise NurseryError(f"the zygote is not warm after {seconds:.0f} s") from None
        if self._socket is None:
            raise NurseryError("the zygote is gone")
        token = next(self._tokens)
        payload = os.memfd_create("convoy-request")
        try:
            with os.fdopen(os.dup(payload), "wb") as file:
                file.write(json.dumps({**request, "token": token}).encode())
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._starts[token] = _Start(on_started, done)
            socket.send_fds(self._socket, [b"F"], [payload, stdout, stderr])
            await asyncio.wait_for(done, START_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:  # noqa: UP041
            raise NurseryError(f"the zygote does not fork: {error}") from error
        finally:
            self._starts.pop(token, None)
            os.close(payload)

    def stop(self) -> None:
        """Lets the zygote go: it ends when it sees its socket closed, and with it what it has forked."""
        warm = self._ready.done()
        self._lose("")
        if not warm and self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # in the middle of its imports it would not look
                os.kill(self.pid, signal.SIGKILL)

    def reaped(self, status: int) -> None:
        """The launcher has collected the zygote's own exit."""
        if self._process is not None:
            self._process.returncode = status  # keeps Popen from waiting for a process that is gone
        self._read()
        self._lose(f"ended with status {status}")

    def _read(self) -> None:
        while self._socket is not None:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lose("closed its socket")
                return
            self._take(json.loads(data))

    def _take(self, event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            self.seconds = event["seconds"]
            if not self._ready.done():
                self._ready.set_result(event["torch"])
        elif event["event"] == "started":
            start = self._starts.get(event["token"])
            if start is not None and not start.done.done():
                start.on_started(event["pid"])
                start.done.set_result(None)
            else:  # the rank was given up and runs cold by now: there must not be two of it
                with contextlib.suppress(ProcessLookupError):
                    os.kill(event["pid"], signal.SIGKILL)
        elif event["event"] == "refused":
            start = self._starts.get(event["token"])
            if start is not None and not start.done.done():
                start.done.set_exception(NurseryError(event["why"]))
        elif event["event"] == "exited":
            self._on_exit(event["pid"], event["status"])

    def _lose(self, why: str) -> None:
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        if why:
            print(f"convoy: the zygote {why}", file=sys.stderr, flush=True)
        error = NurseryError(f"the zygote {why}")
        waiters: list[asyncio.Future[Any]] = [self._ready, *(start.done for start in self._starts.values())]
        for waiting in waiters:
            if not waiting.done():
                waiting.set_exception(error)
                waiting.exception()  # taken here, so that nobody is told of a future without a reader


def _forward(printed: int) -> None:
    """Copies what the zygote prints to the container's log, until it has ended."""
    try:
        data = os.read(printed, 65536)
    except BlockingIOError:
        return
    if data:
        write(data)
    else:
        asyncio.get_running_loop().remove_reader(printed)
        os.close(printed)
