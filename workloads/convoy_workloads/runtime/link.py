"""The rank's connection to the agent of its node. It has one daemon thread and one socket, and reconnects
after every failure.

The training never waits for the connection. If a progress message cannot be sent in time, the next progress
message replaces it.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from convoy_workloads.runtime.frames import Decoder, FrameError, Message, encode
from convoy_workloads.runtime.rank_context import RankContext

PROGRESS_SECONDS = 1.0
"""Minimum number of seconds between two progress messages, and between two telemetry messages."""
MAX_REPORTS = 256
"""Maximum number of other messages that are queued to be sent. If there are more, the oldest are dropped."""
MAX_WINDOWS = 32
"""Maximum number of telemetry windows that are queued to be sent. If there are more, the oldest are
dropped.
"""
RECONNECT_SECONDS = (0.1, 5.0)
"""First and longest pause, in seconds, between two connection attempts. The pause doubles after each
failure.

The thread sleeps for a random 50 % to 100 % of the pause.
"""


class RankLink:
    """Sends progress and telemetry to the agent. Calls `on_message` with each message of the agent, in the
    link's thread.
    """

    def __init__(
        self,
        path: str,
        hello: Message,
        on_message: Callable[[Message], None],
        poll: Callable[[], Message | None] | None = None,
    ) -> None:
        """`poll` replaces `progress`: the link's thread calls it once in `PROGRESS_SECONDS`, and sends the
        message that it returns, if any.
        """
        self._path = path
        self._hello = hello
        self._on_message = on_message
        self._poll = poll
        self._progress: Message | None = None
        self._windows: deque[Message] = deque(maxlen=MAX_WINDOWS)
        self._reports: deque[Message] = deque(maxlen=MAX_REPORTS)
        self._progress_sent = -math.inf
        self._urgent = False
        self._closing = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._owner = os.getpid()
        self._thread = threading.Thread(target=self._run, name="convoy-link", daemon=True)
        self._thread.start()

    def progress(self, message: Message, urgent: bool = False) -> None:
        """Set the progress message to send next. It replaces an earlier message that is not sent yet.

        A normal message is sent at the next time that `PROGRESS_SECONDS` permits, an urgent one at once.
        The caller never waits.
        """
        self._progress = message
        if urgent and os.getpid() == self._owner:
            self._urgent = True
            self._wake()

    def poll_soon(self) -> None:
        """Call `poll` and send its message without waiting for `PROGRESS_SECONDS`. The caller never waits."""
        if os.getpid() == self._owner:
            self._urgent = True
            self._wake()

    def report(self, message: Message) -> None:
        """Queue a message and send it at once. The caller never waits."""
        if os.getpid() == self._owner:
            self._reports.append(message)
            self._wake()

    def telemetry(self, window: Message) -> None:
        """Queue a telemetry window. It is sent with the next progress message."""
        self._windows.append(window)

    def close(self, timeout: float = 2.0) -> None:
        """Send the messages that are still queued and end the thread. Wait at most `timeout` seconds for
        this.
        """
        if os.getpid() != self._owner:
            return
        self._closing = True
        self._wake()
        self._thread.join(timeout)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # A full pipe has already woken the thread.
            os.write(self._wake_write, b"\0")

    def _run(self) -> None:
        pause = RECONNECT_SECONDS[0]
        while not self._closing:
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    connection.settimeout(5.0)
                    connection.connect(self._path)
                    connection.sendall(encode(self._hello))
                    pause = RECONNECT_SECONDS[0]
                    self._serve(connection)
            except (OSError, FrameError):
                pass
            if not self._closing:
                self._sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads dials, no secret
                pause = min(2 * pause, RECONNECT_SECONDS[1])

    def _sleep(self, seconds: float) -> None:
        select.select([self._wake_read], [], [], seconds)
        self._clear_wakeup()

    def _clear_wakeup(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._wake_read, 4096)

    def _serve(self, connection: socket.socket) -> None:
        """Send and receive on one connection until it fails or the link closes."""
        decoder = Decoder()
        while True:
            closing = self._closing
            self._flush(connection, at_once=closing)
            if closing:
                return
            watched: list[Any] = [connection, self._wake_read]
            readable, _, _ = select.select(watched, [], [], self._seconds_until_send())
            if self._wake_read in readable:
                self._clear_wakeup()
            if connection in readable:
                data = connection.recv(65536)
                if not data:
                    return
                for message in decoder.feed(data):
                    self._on_message(message)

    def _seconds_until_send(self) -> float:
        """Return the seconds until the next progress message may be sent, at least 0.05 and at most
        `PROGRESS_SECONDS`.
        """
        return min(max(self._progress_sent + PROGRESS_SECONDS - time.monotonic(), 0.05), PROGRESS_SECONDS)

    def _flush(self, connection: socket.socket, at_once: bool) -> None:
        while self._reports:
            connection.sendall(encode(self._reports[0]))
            self._reports.popleft()
        now = time.monotonic()
        if at_once or self._urgent or now - self._progress_sent >= PROGRESS_SECONDS:
            self._urgent = False
            progress, self._progress = self._progress, None
            if self._poll is not None:
                progress = self._poll()
                self._progress_sent = now
            if progress is not None:
                self._progress_sent = now
                connection.sendall(encode(progress))
            windows = [self._windows.popleft() for _ in range(len(self._windows))]
            if windows:
                self._progress_sent = now
                connection.sendall(encode({"type": "telemetry", "windows": windows}))


def connect(context: RankContext, on_message: Callable[[Message], None]) -> RankLink | None:
    """Return the rank's connection to its agent; None if there is no agent."""
    if not (context.socket and context.launched):
        return None
    hello: Message = {
        "type": "hello",
        "role": "rank",
        "incarnation": context.incarnation,
        "rank": context.rank,
    }
    return RankLink(context.socket, hello, on_message)
