"""Fixtures: a real launcher, and a scripted agent on a real Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from convoy_agents.guard import windows
from convoy_agents.pods import messages
from convoy_agents.pods.rank_events import parse_from_rank
from convoy_agents.traffic import totals

ROOT = Path(__file__).resolve().parents[3]
WORKLOADS = ROOT / "workloads"
DEADLINE = 120.0
"""Maximum number of seconds for any single event of a test. The slowest event is the import of torch on a
busy machine.
"""

PYTHON = os.environ.get("CONVOY_TEST_PYTHON", sys.executable)
"""Path of the interpreter that runs the launcher. Set CONVOY_TEST_PYTHON to test with the oldest supported
interpreter.
"""

Message = dict[str, Any]


async def until(condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
    """Wait until `condition()` is True. Raises AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds} s still not: {condition}"
        await asyncio.sleep(0.02)


class Agent:
    """Stands in for the agent at its end of one pod's socket. The test controls it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.received: list[Message] = []
        self.refused: list[str] = []
        """Messages that the real agent would refuse, each with the error."""
        self._changed = asyncio.Condition()
        self._launcher: asyncio.StreamWriter | None = None
        self._ranks: dict[int, asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))

    async def disconnect(self) -> None:
        """Close every connection and stop listening, as if the agent had died."""
        assert self._server is not None
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        self.path.unlink(missing_ok=True)
        self._launcher = None

    def clear_messages(self) -> None:
        """Drop the received messages, as if the agent had restarted."""
        self.received.clear()

    def send(self, **message: Any) -> None:
        assert self._launcher is not None
        self._launcher.write(_frame(message))

    def send_to_rank(self, rank: int, **message: Any) -> None:
        self._ranks[rank].write(_frame(message))

    async def receives(self, match: Callable[[Message], bool], seconds: float = DEADLINE) -> Message:
        """Return the first message for which `match` is True. Wait for it if it has not been received yet."""

        def found() -> Message | None:
            return next((message for message in self.received if match(message)), None)

        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(lambda: found() is not None), seconds)
            except TimeoutError:
                raise AssertionError(f"not received; received: {self.received[-20:]}") from None
        message = found()
        assert message is not None
        return message

    async def receives_exit(self, rank: int, incarnation: int = 1) -> Message:
        return await self.receives(
            lambda m: (
                m["type"] == "rank"
                and m["state"] == "EXITED"
                and (m["rank"], m["incarnation"]) == (rank, incarnation)
            )
        )

    async def receives_step(self, step: int, rank: int = 0) -> Message:
        return await self.receives(
            lambda m: m["type"] == "progress" and m["from"] == rank and m["step"] >= step
        )

    async def form(self, command: list[str], incarnation: int = 1, ranks: int = 2, **more: Any) -> None:
        """Send the messages that start an incarnation: first request a port, then assign the ranks."""
        self.send(type="pickPort", incarnation=incarnation)
        picked = await self.receives(lambda m: m["type"] == "portPicked" and m["incarnation"] == incarnation)
        self.send(
            **{
                "type": "assignment",
                "incarnation": incarnation,
                "slot": 0,
                "rankOffset": 0,
                "processes": ranks,
                "worldSize": ranks,
                "masterAddr": "127.0.0.1",
                "masterPort": picked["port"],
                "hangSeconds": 600,
                "command": command,
                "role": "worker",
                "replica": 0,
                "job": "default/test",
                **more,
            }
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._talks.add(talk)
        try:
            await self._listen_to(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            writer.close()
            self._talks.discard(talk)

    async def _listen_to(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rank: int | None = None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (length,) = struct.unpack(">I", await reader.readexactly(4))
                message = json.loads(await reader.readexactly(length))
                self._check(message, rank)
                if message["type"] == "hello" and message["role"] == "launcher":
                    self._launcher = writer
                elif message["type"] == "hello":
                    rank = message["rank"]
                    self._ranks[rank] = writer
                async with self._changed:
                    self.received.append(message if rank is None else {**message, "from": rank})
                    self._changed.notify_all()

    def _check(self, message: Message, rank: int | None) -> None:
        """Parse the message as the real agent does."""
        try:
            if message["type"] == "hello":
                messages.parse_hello(message)
            elif rank is None:
                assert messages.parse_from_launcher(message) is not None
            elif message["type"] == "telemetry":
                windows.parse(message, rank)
            elif message["type"] == "traffic":
                totals.parse(message, "uid", 1)
            else:
                assert parse_from_rank(message, messages.RankHello(1, rank)) is not None
        except (messages.MessageError, AssertionError) as error:
            self.refused.append(f"{error!r}: {message}")


def _frame(message: Message) -> bytes:
    body = json.dumps(message).encode()
    return struct.pack(">I", len(body)) + body


class Launcher:
    """Runs the launcher as a container's first process, in a folder with the layout that the agent mounts."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def ends(self, seconds: float = DEADLINE) -> int:
        return await asyncio.to_thread(self.process.wait, seconds)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the one that the agent mounts: launcher, runtime and the public package, but no
    engines.
    """
    folder = tmp_path_factory.mktemp("lib")
    ignore = shutil.ignore_patterns("__pycache__")
    package = WORKLOADS / "convoy_workloads"
    for part in ("launcher", "runtime"):
        shutil.copytree(package / part, folder / "convoy_workloads" / part, ignore=ignore)
    shutil.copy(package / "__init__.py", folder / "convoy_workloads")
    shutil.copytree(WORKLOADS / "convoy_commands", folder / "convoy_commands", ignore=ignore)
    (folder / "convoy").mkdir()
    shutil.copy(WORKLOADS / "convoy" / "__init__.py", folder / "convoy")
    shutil.move(folder / "convoy_workloads/launcher/convoy_launch.py", folder)
    return folder


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is short enough for a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="cv") as folder:
        yield Path(folder)


@pytest.fixture
async def agent(short: Path) -> AsyncIterator[Agent]:
    agent = Agent(short / "agent.sock")
    await agent.listen()
    yield agent
    await agent.disconnect()
    assert agent.refused == []


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH with a `python` without packages. Its zygote needs almost no time to become warm."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "python").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    return folder


@pytest.fixture
async def launch(
    agent: Agent, library: Path, bare: Path, tmp_path: Path
) -> AsyncIterator[Callable[..., Launcher]]:
    """A function that starts a launcher with additional environment variables.

    With `torch`, the launcher's `python` has torch. `prefix` is a command that runs the launcher.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start(
        torch: bool = False, python: str = PYTHON, prefix: tuple[str, ...] = (), **environment: str
    ) -> Launcher:
        log = tmp_path / f"log-{len(started)}"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*prefix, python, "-I", "-S", str(library / "convoy_launch.py")],
                env={
                    "PATH": f"{Path(sys.executable).parent if torch else bare}:/usr/bin:/bin",
                    "PYTHONPATH": f"{WORKLOADS}",  # This folder stands in for the image's site-packages.
                    "GLOO_SOCKET_IFNAME": "lo",
                    "CONVOY_SOCKET": str(agent.path),
                    "OMP_NUM_THREADS": "1",
                    **environment,
                },
                cwd=tmp_path,
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        started.append(process)
        return Launcher(process, log)

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                await asyncio.to_thread(process.wait, 10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
