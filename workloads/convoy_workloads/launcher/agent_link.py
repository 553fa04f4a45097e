"""The launcher's connection to the agent of its node. The launcher dials again whenever the connection
breaks.

Messages are not queued while the connection is down. After each dial the launcher sends its whole state, so
the agent may restart at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable

from convoy_workloads.runtime.frames import Decoder, FrameError, Message, encode

DIAL_SECONDS = (0.05, 2.0)
"""Minimum and maximum number of seconds between two dials. Each pause is multiplied by a random factor from
0.5 to 1, so that launchers do not dial at the same time.
"""
CONNECT_SECONDS = 5.0


class AgentLink:
    """The launcher's only connection to the agent."""

    def __init__(
        self, path: str, hello_messages: Callable[[], list[Message]], on_message: Callable[[Message], None]
    ) -> None:
        """Create the link without dialling.

        `hello_messages` returns the messages to send first on each connection.
        """
        self._path = path
        self._hello_messages = hello_messages
        self._on_message = on_message
        self._writer: asyncio.StreamWriter | None = None
        self.lost_at = time.monotonic()
        """Time at which the connection was lost, or the link was created; monotonic seconds."""

    @property
    def connected(self) -> bool:
        """Return True if the connection is open."""
        return self._writer is not None

    def send(self, message: Message) -> None:
        """Send a message if the connection is open. Otherwise drop it: the first messages of the next
        connection report the launcher's whole state.
        """
        if self._writer is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._writer.write(encode(message))

    async def run(self) -> None:
        """Connect, exchange messages and reconnect, until the task is cancelled."""
        pause = DIAL_SECONDS[0]
        while True:
            dialled: Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
            dialled = asyncio.open_unix_connection(self._path)
            try:
                reader, writer = await asyncio.wait_for(dialled, CONNECT_SECONDS)
            except (OSError, asyncio.TimeoutError):  # noqa: UP041 - two classes before 3.11
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads dials, no secret
                pause = min(2 * pause, DIAL_SECONDS[1])
                continue
            pause = DIAL_SECONDS[0]
            try:
                await self._exchange(reader, writer)
            finally:
                self._writer = None
                self.lost_at = time.monotonic()
                writer.close()
            await asyncio.sleep(DIAL_SECONDS[0] * random.uniform(0.5, 1.0))  # noqa: S311

    async def flush(self, seconds: float = 2.0) -> None:
        """Wait at most `seconds` until this process has written all sent messages to the socket."""
        if self._writer is not None:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(self._writer.drain(), seconds)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        decoder = Decoder()
        try:
            for message in self._hello_messages():
                writer.write(encode(message))
            while True:
                data = await reader.read(65536)
                if not data:
                    return
                for message in decoder.feed(data):
                    self._on_message(message)
        except (OSError, FrameError) as error:
            print(f"convoy: the connection to the agent broke and is dialled again: {error}", flush=True)
