"""The rank's own line to the agent's memory: one question at a time, each answered within a deadline.

Apart from the link on which the rank reports, so that neither waits for the other. The agent may be away (an
upgrade takes seconds): what is asked then is asked again of its successor, which has all that the one before
had. The training never waits for it; restoring does.
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
from collections.abc import Iterator
from typing import Any

from convoy_workloads.runtime.frames import Decoder, FrameError, Message, encode

RESPONSE_SECONDS = 30.0
"""For one answer, unless more is allowed."""
_RECONNECT_SECONDS = (0.05, 1.0)
_MOST_FILES = 64


class AgentUnavailable(OSError):
    """No agent has answered in time."""


class MappedFile:
    """A file of the agent's memory, mapped into this process."""

    def __init__(self, fd: int, write: bool) -> None:
        try:
            size = os.fstat(fd).st_size
            access = mmap.PROT_READ | (mmap.PROT_WRITE if write else 0)
            # Later first touches of pages, one by one, would cost more than the copy.
            flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0x8000)
            self.map = mmap.mmap(fd, size, flags, access)
        finally:
            os.close(fd)
        self.bytes = memoryview(self.map)

    def close(self) -> None:
        """Unmaps it, or leaves that to whoever still looks at it."""
        with contextlib.suppress(BufferError):
            self.bytes.release()
            self.map.close()


class MemoryClient:
    """Dialled when it is first needed, and again whenever it breaks."""

    def __init__(self, path: str, hello: Message) -> None:
        self._path = path
        self._hello = hello
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._decoder = Decoder()
        self._messages: list[Message] = []
        self._files: list[int] = []

    def request(self, question: Message, seconds: float = RESPONSE_SECONDS) -> tuple[Message, list[int]]:
        """The answer, and the descriptors that came with it, which the caller closes. Away in the end."""
        deadline = time.monotonic() + seconds
        pause = _RECONNECT_SECONDS[0]
        with self._lock:
            while True:
                try:
                    return self._once(question, deadline)
                except (OSError, FrameError) as error:
                    self._disconnect()
                    if time.monotonic() + pause >= deadline:
                        raise AgentUnavailable(f"the agent does not answer: {error}") from error
                time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads dials, no secret
                pause = min(2 * pause, _RECONNECT_SECONDS[1])

    def close(self) -> None:
        """Ends the connection."""
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
                # It works on it. So long as it says so it is not away.
                deadline = max(deadline, time.monotonic() + RESPONSE_SECONDS)
                continue
            return answer, files

    def _receive(self, deadline: float) -> None:
        assert self._socket is not None  # noqa: S101 - the caller has dialled
        self._socket.settimeout(max(0.01, deadline - time.monotonic()))
        size = array.array("i").itemsize
        data, ancillary, flags, _ = self._socket.recvmsg(65536, socket.CMSG_LEN(_MOST_FILES * size))
        self._files += _descriptors(ancillary)
        if not data or flags & socket.MSG_CTRUNC:
            raise ConnectionError("the agent hung up")
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
