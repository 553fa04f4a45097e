"""One connection to a pod's socket, with a rate limit on its input and a size limit on its output buffer."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_agents.pods import limits
from convoy_agents.pods.frames import Decoder, FrameError, encode

READ_BYTES = 64 * 1024
LINGER_SECONDS = 5.0


@dataclass(slots=True)
class Partial:
    """Number of bytes in unfinished frames that the agent buffers for all connections of one pod."""

    bytes: int = 0


class Connection:
    """One connection from a launcher or a rank. The session sets `incarnation` and `rank` after the rank's
    hello.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        partial: Partial,
        rate_limiter: limits.RateLimiter,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._partial = partial
        self.rate_limiter = rate_limiter
        """The rate limiter. All connections of the pod of the same kind (frames or memory) share it."""
        self.incarnation = 0
        self.rank = -1

    def peer(self) -> str:
        """Return the pid and uid of the process at the other end, for logs. They are no proof of identity."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return f"pid {pid} uid {uid}"

    def raw(self) -> socket.socket:
        """Return a duplicate of the socket, by which the caller can send file descriptors. The caller
        closes the duplicate.
        """
        sock: socket.socket = self._writer.get_extra_info("socket")
        return sock.dup()

    async def frames(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield frames until the other end closes the connection. Raises FrameError if the stream is
        invalid.
        """
        decoder = Decoder()
        held = 0
        try:
            while data := await self._reader.read(READ_BYTES):
                await self.rate_limiter.wait(len(data) / limits.BYTES_PER_FRAME)
                frames = decoder.feed(data)
                self._partial.bytes += decoder.held - held
                held = decoder.held
                if self._partial.bytes > limits.MAX_PARTIAL:
                    raise FrameError(f"this pod's unfinished frames exceed {limits.MAX_PARTIAL} bytes")
                for frame in frames:
                    await self.rate_limiter.wait(limits.weight(frame))
                    yield frame
        except (ConnectionError, OSError):
            return
        finally:
            self._partial.bytes -= held

    def send(self, frame: Mapping[str, Any]) -> None:
        """Queue a frame. If the other end has left more than MAX_UNREAD bytes unread, abort the connection
        instead.
        """
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > limits.MAX_UNREAD:
            self._writer.transport.abort()
            return
        self._writer.write(encode(frame))

    def close(self) -> None:
        """Close the connection after the queued data is sent. If the other end does not read this data
        within LINGER_SECONDS, abort the connection.
        """
        if not self._writer.is_closing():
            self._writer.close()
            if self._writer.transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(LINGER_SECONDS, self._writer.transport.abort)
