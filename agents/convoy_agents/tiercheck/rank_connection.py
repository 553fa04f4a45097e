"""The connection through which a rank uses its node's memory. It carries frames with attached file
descriptors.

A descriptor gives a pod access to exactly one file. The pod needs no path on the node and no mount, so this
also works for pods that are already running.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from convoy_agents.csi import mounts
from convoy_agents.pods.assignment import Assignment
from convoy_agents.pods.connection import Connection
from convoy_agents.pods.frames import encode

SEND_SECONDS = 10.0
"""Timeout in seconds of one send. A rank that reads nothing for this time is disconnected."""
_RETRY_SECONDS = 0.002
MAX_FILES = 64
"""Maximum number of descriptors in one frame. Linux allows 253 (unix(7), SCM_RIGHTS)."""


class RankConnection:
    """The connection of one rank. Its requests are handled one at a time."""

    def __init__(
        self, connection: Connection, raw: socket.socket, frames: AsyncIterator[dict[str, Any]]
    ) -> None:
        """`raw`: a duplicate of the connection's socket; the caller closes it. `frames`: the frames that
        the rank sends.
        """
        self.rank = connection.rank
        self.incarnation = connection.incarnation
        self.frames = frames
        """The frames that the rank sends."""
        self._raw = raw

    async def send(
        self, frame: Mapping[str, Any], files: Sequence[Path] = (), *, write: bool = False
    ) -> None:
        """Send a frame with descriptors of these files, read-only unless `write`.

        Raises OSError if a file cannot be opened, ConnectionError if the rank has disconnected, and
        TimeoutError after SEND_SECONDS.
        """
        fds: list[int] = []
        try:
            # `extend` adds each descriptor to the list as soon as its file is open. So if a later file cannot
            # be opened, the descriptors in the list are closed below.
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


async def handle_frames(
    connection: RankConnection,
    current: Callable[[], Assignment | None],
    handle: Callable[[Assignment, RankConnection, dict[str, Any]], Awaitable[None]],
) -> None:
    """Handle the frames of a rank until it disconnects, its incarnation ends, or it has no assignment any
    more. `current`: returns the assignment under which it is served.
    """
    async for frame in connection.frames:
        plan = current()
        if plan is None or plan.incarnation != connection.incarnation or connection.rank not in plan.ranks:
            return
        try:
            await handle(plan, connection, frame)
        except (ConnectionError, TimeoutError):
            return
