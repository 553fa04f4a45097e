"""Measures the cost of a rank's telemetry: processor time, bytes, and steps with and without telemetry."""

from __future__ import annotations

import json
import socket
import statistics
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from convoy_agents.guard.telemetry_buffer import TelemetryBuffer
from convoy_agents.guard.windows import parse
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.runtime.frames import Decoder, Message
from e2e.bench.guard.stepping import WARM_UP
from e2e.cluster import files
from e2e.cluster.run import run

TINY = (8, 8, 4000)
"""Width, batch and steps of a model so small that its steps are almost only overhead of torch and
telemetry.
"""
SECOND = (2048, 1536, 12)
"""Width, batch and steps of a model whose step takes about one second on one core."""
_ROUNDS = 6
_MAX_OVERHEAD = 0.003
"""Target for the overhead of telemetry: its maximum fraction of a step of one second."""
_UID = "0" * 36


@dataclass
class _Agent:
    """The agent's end of a rank's socket. It counts the bytes that it receives and those that it would send
    to the hub.
    """

    path: Path
    received: int = 0
    passed_on: int = 0
    _server: socket.socket = field(default_factory=lambda: socket.socket(socket.AF_UNIX))

    def __post_init__(self) -> None:
        self._server.bind(str(self.path))
        self._server.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._server.accept()
            with connection:
                decoder = Decoder()
                while data := connection.recv(65536):
                    self.received += len(data)
                    for message in decoder.feed(data):
                        if message["type"] == "telemetry":
                            self._pass_on(message)

    def _pass_on(self, message: Message) -> None:
        """Encode a message as an agent with one rank does, and count the bytes."""
        buffer = TelemetryBuffer()
        buffer.add(_UID, 1, parse(message, 0))
        if (received := buffer.pop_message()) is not None:
            self.passed_on += received.ByteSize()


def bench(figures: Figures) -> None:
    """Run the program `stepping` with and without telemetry, alternately, and add the rows."""
    with tempfile.TemporaryDirectory() as folder:
        agent = _Agent(Path(folder) / "agent.sock")
        tiny = Metric("telemetry: processor time of a step", "us", 1e6 * _MAX_OVERHEAD)
        for _ in range(_ROUNDS):
            without, with_it = _steps(TINY)["cpu"], _steps(TINY, agent)["cpu"]
            figures.add(tiny, 1e6 * (with_it - without))
        agent.received = agent.passed_on = 0
        seconds = 0.0
        walls: dict[bool, list[float]] = {False: [], True: []}
        for number in range(2 * _ROUNDS):
            on = number % 2 == 1
            wall = _steps(SECOND, agent if on else None)["wall"]
            walls[on].append(wall)
            seconds += wall * (SECOND[2] + WARM_UP) if on else 0.0
        for without, with_it in zip(walls[False], walls[True], strict=True):
            figures.add(
                Metric("steps of about a second, with telemetry / without", "x", 1 + _MAX_OVERHEAD),
                with_it / without,
            )
        for one, another in zip(walls[False], walls[False][1:], strict=False):
            figures.add(Metric("the same without / without: the machine's noise", "x"), another / one)
        figures.add(Metric("a step of about a second", "s"), statistics.median(walls[False]))
        for name, count in (("its agent", agent.received), ("the hub", agent.passed_on)):
            figures.add(Metric(f"telemetry of a rank, to {name}", "bytes/s"), count / seconds)


def _steps(size: tuple[int, int, int], agent: _Agent | None = None) -> dict[str, float]:
    argv = [sys.executable, "-m", "e2e.bench.guard.stepping", *map(str, size)]
    argv += [str(agent.path)] if agent is not None else []
    found: dict[str, float] = json.loads(run(argv, cwd=files.CHECKOUT, deadline=300).splitlines()[-1])
    return found
