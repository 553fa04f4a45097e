"""A pod of a local run: a launcher process, and the agent's end of the launcher's socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from convoy_crds.layout import Slot
from convoy_crds.shown import error_line
from convoy_workloads.launcher import system
from convoy_workloads.runtime.frames import Decoder, FrameError, Message, encode

LAUNCHER, MEMORY = "launcher", "memory"
DRAIN_SECONDS = 2.0
"""Seconds to read the rest of the output after the launcher has ended. There is a limit because processes
that ranks have left may hold the output open.
"""


class Pod:
    """A pod of a local run.

    `on_message(pod, rank, message)` is called for each message of the pod's launcher and ranks. `rank` is
    None for a message of the launcher. `on_line` is called for each line of the launcher's output, which
    includes the ranks' lines.
    """

    def __init__(
        self,
        slot: Slot,
        command: tuple[str, ...],
        folder: Path,
        on_message: Callable[[Pod, int | None, Message], None],
        on_line: Callable[[bytes], None],
        lock: int,
    ) -> None:
        """Create the pod without starting its launcher. `lock` is the descriptor of an open lock file. The
        launcher inherits it, so the lock is held as long as the launcher lives.
        """
        self.slot = slot
        self.command = command
        self.connected = asyncio.Event()
        self.process: subprocess.Popen[bytes] | None = None
        self._socket = folder / f"{slot.index}.sock"
        self._on_message = on_message
        self._on_line = on_line
        self._output: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._lock = lock
        self._launcher: asyncio.StreamWriter | None = None
        self._ranks: dict[int, asyncio.StreamWriter] = {}
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, environment: Mapping[str, str], folder: Path) -> None:
        """Open the socket, then start the launcher with the working directory `folder`.

        The launcher has a session of its own, so Ctrl-C in the terminal does not reach it. `signal` passes
        the signal on.
        """
        self._server = await asyncio.start_unix_server(self._serve, str(self._socket))
        self.process = subprocess.Popen(  # noqa: ASYNC220 - a fork; there is nothing to wait for
            [sys.executable, "-I", "-S", "-X", "utf8", system.entry()],
            env={**environment, "CONVOY_SOCKET": str(self._socket)},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=(self._lock,),
            start_new_session=True,
        )
        self._output = asyncio.create_task(self._forward_output())

    def send(self, message: Message) -> None:
        """Send a message to the launcher."""
        if self._launcher is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._launcher.write(encode(message))

    def send_to_rank(self, rank: int, message: Message) -> None:
        """Send a message to a rank that has connected."""
        if (writer := self._ranks.get(rank)) is not None:
            with contextlib.suppress(OSError, RuntimeError):
                writer.write(encode(message))

    def signal(self, number: int) -> None:
        """Send a signal to the launcher if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    async def wait(self, seconds: float) -> int | None:
        """Wait for the launcher's end and return its exit code. Return None if the launcher has not ended
        after `seconds`.
        """
        if self.process is None:
            return None
        try:
            return await asyncio.to_thread(self.process.wait, seconds)
        except subprocess.TimeoutExpired:
            return None

    async def close(self) -> None:
        """Kill the launcher if it still runs, read its last output and close the sockets."""
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, 9)
            await self.wait(5)
        if self._output is not None:
            await asyncio.wait([self._output], timeout=DRAIN_SECONDS)
            self._output.cancel()
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()

    async def _forward_output(self) -> None:
        assert self.process is not None and self.process.stdout is not None  # noqa: S101
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self.process.stdout
        )
        try:
            async for line in reader:
                self._on_line(line)
        finally:
            transport.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder()
        rank: int | None = None
        memory = False
        self._writers.add(writer)
        try:
            while data := await reader.read(65536):
                for message in decoder.feed(data):
                    if memory:
                        writer.write(
                            encode({"type": "refused", "why": "a local run keeps no states in memory"})
                        )
                        continue
                    if message["type"] == "hello" and message.get("role") == MEMORY:
                        memory = True
                        continue
                    if message["type"] == "hello" and message.get("role") == LAUNCHER:
                        self._launcher = writer
                        self.connected.set()
                    elif message["type"] == "hello":
                        rank = int(message["rank"])
                        self._ranks[rank] = writer
                    self._on_message(self, rank, message)
        except (OSError, FrameError, KeyError, ValueError) as error:
            print(f"convoy: a connection of pod {self.slot.pod} broke: {error_line(error)}", file=sys.stderr)
        finally:
            self._writers.discard(writer)
            writer.close()
