"""The rank's connection to the agent's checkpoint memory. It carries one request at a time, each with a
deadline.

The rank's reports have another connection (link.py), so that requests and reports do not wait for each
other. The agent may be unavailable for some seconds during an upgrade. The client then repeats the request
until the upgraded agent responds, which keeps the same memory. The training never waits for this
connection, but a restore does.
"""

from __future__ import annotations

import array
import contextlib
import mmap
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from convoy_workloads.runtime.frames import Decoder, FrameError, Message, encode
from convoy_workloads.runtime.tiers import pinning

RESPONSE_SECONDS = 30.0
"""Default time limit of one request, in seconds."""
_RECONNECT_SECONDS = (0.05, 1.0)
_MAX_FILES = 64


class AgentUnavailable(OSError):
    """Raised if no agent has responded in time."""


class MappedFile:
    """A file of the agent's memory that is mapped into this process."""

    def __init__(self, fd: int, write: bool) -> None:
        try:
            size = os.fstat(fd).st_size
            access = mmap.PROT_READ | (mmap.PROT_WRITE if write else 0)
            # Populate all pages at once, because page faults during the copy would cost more than the copy
            # itself.
            flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0x8000)
            self.map = mmap.mmap(fd, size, flags, access)
        finally:
            os.close(fd)
        self.bytes = memoryview(self.map)
        self._unpin: Callable[[], None] = _nothing

    def pin(self, device: int) -> None:
        """Let the GPU with this number copy to the memory directly."""
        self._unpin = pinning.pin(self.bytes, device) or _nothing

    def close(self) -> None:
        """Unmap the file. A file with a view that is still in use stays mapped until the view is released."""
        self._unpin()
        self._unpin = _nothing
        with contextlib.suppress(BufferError):
            self.bytes.release()
            self.map.close()


def _nothing() -> None:
    """Do nothing."""


class MemoryClient:
    """Sends requests to the agent. Connects at the first request, and reconnects after every failure."""

    def __init__(self, path: str, hello: Message) -> None:
        self._path = path
        self._hello = hello
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._decoder = Decoder()
        self._messages: list[Message] = []
        self._files: list[int] = []

    def request(self, question: Message, seconds: float = RESPONSE_SECONDS) -> tuple[Message, list[int]]:
        """Send a request. Return the response, and the file descriptors that came with it, which the caller
        must close.

        Raises AgentUnavailable if no agent responds within `seconds`.
        """
        deadline = time.monotonic() + seconds
        pause = _RECONNECT_SECONDS[0]
        with self._lock:
            while True:
                try:
                    return self._once(question, deadline)
                except (OSError, FrameError) as error:
                    self._disconnect()
                    if time.monotonic() + pause >= deadline:
                        raise AgentUnavailable(f"the agent does not respond: {error}") from error
                time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads dials, no secret
                pause = min(2 * pause, _RECONNECT_SECONDS[1])

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._disconnect()

    def _once(self, question: Message, deadline: float) -> tuple[Message, list[int]]:
        if self._socket is None:
            fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket = fresh
            fresh.settimeout(5.0)
            fresh.connect(self._path)
            fresh.sendall(encode(self._hello))
        self._socket.sendall(encode(question))
        while True:
            while not self._messages:
                self._receive(deadline)
            answer = self._messages.pop(0)
            files, self._files = self._files[: answer.get("files", 0)], self._files[answer.get("files", 0) :]
            if answer["type"] == "wait":
                # The agent is working on the request, so wait longer for the response.
                deadline = max(deadline, time.monotonic() + RESPONSE_SECONDS)
                continue
            return answer, files

    def _receive(self, deadline: float) -> None:
        assert self._socket is not None  # noqa: S101 - the caller has dialled
        self._socket.settimeout(max(0.01, deadline - time.monotonic()))
        size = array.array("i").itemsize
        data, ancillary, flags, _ = self._socket.recvmsg(65536, socket.CMSG_LEN(_MAX_FILES * size))
        self._files += _descriptors(ancillary)
        if not data or flags & socket.MSG_CTRUNC:
            raise ConnectionError("the agent closed the connection")
        self._messages += self._decoder.feed(data)

    def _disconnect(self) -> None:
        for fd in self._files:
            os.close(fd)
        self._files, self._messages, self._decoder = [], [], Decoder()
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _descriptors(ancillary: Any) -> Iterator[int]:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found = array.array("i")
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
            yield from found
