"""The connection on which a rank is handed its memory: frames, and file descriptors with them.

A descriptor shows a pod exactly one file, whatever else lies beside it: no path of the node and no mount has
to be given to it, and it works in a pod that runs already.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from convoy_agents.csi import mounts
from convoy_agents.pods.connection import Connection
from convoy_agents.pods.frames import encode

SEND_SECONDS = 10.0
"""A rank that reads nothing for so long is cut off."""
_RETRY_SECONDS = 0.002
MAX_FILES = 64
"""Descriptors with one frame; Linux takes 253 (unix(7), SCM_RIGHTS)."""


class RankConnection:
    """One rank's. Frames are answered one after another."""

    def __init__(
        self, connection: Connection, raw: socket.socket, frames: AsyncIterator[dict[str, Any]]
    ) -> None:
        """`raw`: a duplicate of the connection's socket, which the caller closes. `frames`: what comes."""
        self.rank = connection.rank
        self.incarnation = connection.incarnation
        self.frames = frames
        """What the rank asks."""
        self._raw = raw

    async def send(
        self, frame: Mapping[str, Any], files: Sequence[Path] = (), *, write: bool = False
    ) -> None:
        """Answers, with descriptors of files that may be read, or also written. OSError, ConnectionError."""
        fds: list[int] = []
        try:
            # One after another: what is open already is closed if the next cannot be opened.
            fds.extend(os.open(path, os.O_RDWR) if write else mounts.open_read_only(path) for path in files)
            data = encode({**frame, "files": len(fds)})
            async with asyncio.timeout(SEND_SECONDS):
                await self._send(data, fds)
        finally:
            for fd in fds:
                os.close(fd)

    async def _send(self, data: bytes, fds: list[int]) -> None:
        left = memoryview(data)
        while left:
            with contextlib.suppress(BlockingIOError):
                sent = socket.send_fds(self._raw, [left], fds) if fds else self._raw.send(left)
                left, fds = left[sent:], []
                continue
            await asyncio.sleep(_RETRY_SECONDS)
