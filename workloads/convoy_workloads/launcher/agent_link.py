"""The launcher's line to its node's agent: dialled until it stands, dialled again when it breaks.

Nothing is queued while it is down. After each dial the launcher says all it knows, so an agent that was away,
or is a new one, has the whole truth from the first messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable

from convoy_workloads.runtime.frames import Decoder, FrameError, Message, encode

DIAL_SECONDS = (0.05, 2.0)
"""First and longest pause between two dials; each pause is drawn from half to all of it."""
CONNECT_SECONDS = 5.0


class AgentLink:
    """One connection at a time."""

    def __init__(
        self, path: str, greeting: Callable[[], list[Message]], on_message: Callable[[Message], None]
    ) -> None:
        """`greeting` gives what to say first on every new connection."""
        self._path = path
        self._greeting = greeting
        self._on_message = on_message
        self._writer: asyncio.StreamWriter | None = None
        self.lost_at = time.monotonic()
        """When the line was last known to stand (or when dialling began), monotonic seconds."""

    @property
    def connected(self) -> bool:
        """Whether the line stands."""
        return self._writer is not None

    def send(self, message: Message) -> None:
        """Says it now, or never: what matters is in the greeting."""
        if self._writer is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._writer.write(encode(message))

    async def run(self) -> None:
        """Keeps the line up until cancelled."""
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
                await self._talk(reader, writer)
            finally:
                self._writer = None
                self.lost_at = time.monotonic()
                writer.close()
            await asyncio.sleep(DIAL_SECONDS[0] * random.uniform(0.5, 1.0))  # noqa: S311

    async def flush(self, seconds: float = 2.0) -> None:
        """Waits until what was said has left this process."""
        if self._writer is not None:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(self._writer.drain(), seconds)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        decoder = Decoder()
        try:
            for message in self._greeting():
                writer.write(encode(message))
            while True:
                data = await reader.read(65536)
                if not data:
                    return
                for message in decoder.feed(data):
                    self._on_message(message)
        except (OSError, FrameError) as error:
            print(f"convoy: the line to the agent breaks: {error}", flush=True)
