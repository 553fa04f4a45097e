"""Two starts of one program by the launcher's own code: forked from a zygote (warm), and executed (cold)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from convoy_workloads.launcher import starting
from convoy_workloads.launcher.command import parse
from convoy_workloads.launcher.rank import EXITED, Rank
from convoy_workloads.launcher.rank_env import Assignment, Container, rank_environment
from convoy_workloads.launcher.streams import Streams
from convoy_workloads.launcher.system import library
from convoy_workloads.launcher.zygote_manager import WARM_VARIABLE, ZygoteManager

DEADLINE = 60.0
ASSIGNMENT = Assignment(
    1, 0, 0, 1, 1, "127.0.0.1", 29400, 600.0, ("python",), "default/test", "uid", "worker"
)
OUT = "OUT"
"""Name of the variable with the folder for a program's files. Each start has its own folder."""


@dataclass(frozen=True)
class Outcome:
    """Everything that can be observed of a process from outside."""

    status: int
    """Exit code, or the negative number of the signal that ended the process."""
    stdout: str
    stderr: str
    files: tuple[tuple[str, str], ...]
    """Names and contents of the files that the program has written."""


class Captured(Streams):
    """Pipes of a rank whose content is kept unchanged."""

    def __init__(self) -> None:
        super().__init__(1, 0, 0)
        self.sinks = (bytearray(), bytearray())
        self.over = asyncio.Event()
        self._open_pipes = 0

    def open(self, write: Callable[[bytes], None]) -> list[int]:
        return [self._pipe(sink) for sink in self.sinks]

    def close(self) -> None:
        """Do nothing, because the pipes close when the rank's last process ends."""

    def _pipe(self, sink: bytearray) -> int:
        loop = asyncio.get_running_loop()
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        self._open_pipes += 1

        def read() -> None:
            data = os.read(ours, 65536)
            sink.extend(data)
            if not data:
                loop.remove_reader(ours)
                os.close(ours)
                self._open_pipes -= 1
                if not self._open_pipes:
                    self.over.set()

        loop.add_reader(ours, read)
        return theirs


class Probe(Rank):
    """A rank whose output and files are kept for the comparison."""

    def __init__(self, out: Path) -> None:
        super().__init__(1, 0, "")
        self._out = out
        self._streams: Captured = Captured()

    async def outcome(self) -> Outcome:
        await asyncio.wait_for(asyncio.gather(self.done.wait(), self._streams.over.wait()), DEADLINE)
        out, err = (
            bytes(sink).decode(errors="backslashreplace").replace(str(self._out), "$OUT")
            for sink in self._streams.sinks
        )
        files = ((str(path.relative_to(self._out)), path.read_text()) for path in sorted(self._out.iterdir()))
        return Outcome(-self.signal or self.exit_code, out, err, tuple(files))


class Pair:
    """A warm and a cold way to start programs: a zygote, and the environment of the zygote's container."""

    def __init__(self, environment: Mapping[str, str], scratch: Path) -> None:
        self._base = dict(environment)
        self._scratch = scratch
        self._ranks: dict[int, Probe] = {}
        self._lost: dict[int, int] = {}
        self._started = 0
        self.warm = ZygoteManager(self._base, self._ended)
        self.cold = ZygoteManager({**self._base, WARM_VARIABLE: "false"}, self._ended)

    async def both(self, *command: str, **environment: str) -> tuple[Outcome, Outcome]:
        """Start the command warm and cold at the same time. Return the outcome of the warm and of the cold
        start.
        """
        probes = [await self.start(zygotes, *command, **environment) for zygotes in (self.warm, self.cold)]
        assert [probe.warm for probe in probes] == [True, False]
        warm, cold = await asyncio.gather(*(probe.outcome() for probe in probes))
        return warm, cold

    async def start(self, zygotes: ZygoteManager, *command: str, **environment: str) -> Probe:
        """Start a command as rank 0 of 1, warm or cold as `zygotes` decides."""
        self._started += 1
        out = self._scratch / f"out-{self._started}"
        out.mkdir()
        probe = Probe(out)
        own = rank_environment(self._base, ASSIGNMENT, 0, Container(1, "", library()), "")
        await starting.start_rank(probe, parse(command), {**own, **environment, OUT: str(out)}, zygotes)
        self._ranks[probe.pid] = probe
        if probe.pid in self._lost:
            probe.record_exit(self._lost.pop(probe.pid))
        elif not probe.warm:
            loop = asyncio.get_running_loop()
            loop.run_in_executor(
                None, lambda: loop.call_soon_threadsafe(probe.record_exit, os.waitpid(probe.pid, 0)[1])
            )
        return probe

    def stop(self) -> None:
        """Stop the zygote, and kill the ranks that a failed test has left running."""
        for probe in self._ranks.values():
            if probe.state != EXITED:
                probe.kill()
        self.warm.stop()

    def _ended(self, pid: int, status: int) -> None:
        if pid in self._ranks:
            self._ranks[pid].record_exit(status)
        else:  # The rank ended before its start was recorded.
            self._lost[pid] = status
